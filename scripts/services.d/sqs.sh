# shellcheck shell=bash disable=SC2154 # root is set by scripts/services
# ElasticMQ, which speaks the Amazon SQS API.
sqs_version=1.6.12
sqs_port=${OUTBOX_SQS_PORT:-19324}

address_sqs() { printf '127.0.0.1:%s\n' "$sqs_port"; }
env_sqs() { printf "export OUTBOX_TEST_SQS_URL='sqs://%s'\n" "$(address_sqs)"; }

install_sqs() {
  install_java
  mkdir -p "$root/sqs"
  cat >"$root/sqs/pom.xml" <<EOF
<project xmlns="http://maven.apache.org/POM/4.0.0">
  <modelVersion>4.0.0</modelVersion>
  <groupId>outbox.services</groupId>
  <artifactId>sqs</artifactId>
  <version>1</version>
  <dependencies>
    <dependency><groupId>org.elasticmq</groupId><artifactId>elasticmq-server_2.13</artifactId><version>$sqs_version</version></dependency>
  </dependencies>
</project>
EOF
  maven_libs "$root/sqs/libs-$sqs_version" "$root/sqs/pom.xml"
}

start_sqs() {
  local dir=$root/sqs java
  java=$(java17)
  mkdir -p "$dir/data"
  # Storage is off by default: a restart would then lose everything.
  cat >"$dir/elasticmq.conf" <<EOF
include classpath("application.conf")
node-address { protocol = http, host = 127.0.0.1, port = $sqs_port, context-path = "" }
rest-sqs { enabled = true, bind-port = $sqs_port, bind-hostname = "127.0.0.1", sqs-limits = strict }
rest-stats { enabled = false }
messages-storage { enabled = true, uri = "jdbc:h2:$dir/data/elasticmq" }
queues-storage { enabled = true, path = "$dir/data/queues.conf" }
EOF
  spawn sqs "-Dconfig.file=$dir/elasticmq.conf" "$java" -Xmx256m -Dconfig.file="$dir/elasticmq.conf" \
    -cp "$dir/libs-$sqs_version/*" org.elasticmq.server.Main
}

ready_sqs() {
  local line=''
  {
    printf 'GET /?Action=ListQueues HTTP/1.0\r\nHost: 127.0.0.1\r\n\r\n' >&5
    IFS= read -r -t 5 line <&5
  } 5<>"/dev/tcp/127.0.0.1/$sqs_port" || return 1
  [[ $line == HTTP/1.?' 200 '* ]]
}
