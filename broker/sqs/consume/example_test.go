package consume_test

import (
	"context"
	"fmt"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/credentials"
	sdk "github.com/aws/aws-sdk-go-v2/service/sqs"

	"github.com/go-outbox/outbox/broker/sqs"
	"github.com/go-outbox/outbox/broker/sqs/consume"
	"github.com/go-outbox/outbox/broker/sqs/sqsfake"
)

func ExampleRun() {
	fake, err := sqsfake.Start(sqsfake.Config{}) // stands for SQS
	if err != nil {
		fmt.Println(err)
		return
	}
	defer fake.Close()
	url, err := fake.CreateQueue("orders.fifo", nil)
	if err != nil {
		fmt.Println(err)
		return
	}
	client := sdk.New(sdk.Options{
		Region: "us-east-1", BaseEndpoint: aws.String(fake.URL()),
		Credentials: credentials.NewStaticCredentialsProvider("test", "test", ""),
	})
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	for _, status := range []string{"created", "paid", "shipped"} { // what a dispatcher does
		if _, err := client.SendMessage(ctx, &sdk.SendMessageInput{
			QueueUrl: &url, MessageBody: &status, MessageGroupId: aws.String("ord_1"), MessageDeduplicationId: &status,
		}); err != nil {
			fmt.Println(err)
			return
		}
	}

	err = consume.Run(ctx, client, url, func(_ context.Context, m sqs.Message) error {
		fmt.Println(m.GroupID, string(m.Payload))
		if string(m.Payload) == "shipped" {
			cancel()
		}
		return nil
	}, consume.Config{})
	fmt.Println(err)
	// Output:
	// ord_1 created
	// ord_1 paid
	// ord_1 shipped
	// <nil>
}
