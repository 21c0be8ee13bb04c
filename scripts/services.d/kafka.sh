# shellcheck shell=bash disable=SC2154 # root is set by scripts/services
# Apache Kafka: one KRaft node. Besides the usual listener it has one that is
# advertised at another port than it listens on: tests put a fault proxy there,
# since Kafka's clients follow the advertised address past any other proxy.
# kcat is an independent client by which tests look at topics.
kafka_version=4.4.0
kafka_port=${OUTBOX_KAFKA_PORT:-19092}
kafka_controller_port=${OUTBOX_KAFKA_CONTROLLER_PORT:-19093}
kafka_upstream_port=${OUTBOX_KAFKA_UPSTREAM_PORT:-19094}
kafka_proxy_port=${OUTBOX_KAFKA_PROXY_PORT:-19095}

address_kafka() { printf '127.0.0.1:%s\n' "$kafka_port"; }
env_kafka() {
  printf "export OUTBOX_TEST_KAFKA_URL='kafka://%s'\n" "$(address_kafka)"
  printf "export OUTBOX_TEST_KAFKA_PROXY_LISTEN='127.0.0.1:%s'\n" "$kafka_proxy_port"
  printf "export OUTBOX_TEST_KAFKA_PROXY_UPSTREAM='127.0.0.1:%s'\n" "$kafka_upstream_port"
}

install_kafka() {
  have kcat || apt_install kcat
  install_java
  mkdir -p "$root/kafka"
  cat >"$root/kafka/pom.xml" <<EOF
<project xmlns="http://maven.apache.org/POM/4.0.0">
  <modelVersion>4.0.0</modelVersion>
  <groupId>outbox.services</groupId>
  <artifactId>kafka</artifactId>
  <version>1</version>
  <dependencies>
    <dependency><groupId>org.apache.kafka</groupId><artifactId>kafka_2.13</artifactId><version>$kafka_version</version></dependency>
    <dependency><groupId>org.slf4j</groupId><artifactId>slf4j-simple</artifactId><version>1.7.36</version></dependency>
  </dependencies>
</project>
EOF
  maven_libs "$root/kafka/libs-$kafka_version" "$root/kafka/pom.xml"
}

start_kafka() {
  local dir=$root/kafka java
  java=$(java17)
  cat >"$dir/server.properties" <<EOF
process.roles=broker,controller
node.id=1
controller.quorum.voters=1@127.0.0.1:$kafka_controller_port
listeners=PLAINTEXT://127.0.0.1:$kafka_port,PROXIED://127.0.0.1:$kafka_upstream_port,CONTROLLER://127.0.0.1:$kafka_controller_port
advertised.listeners=PLAINTEXT://127.0.0.1:$kafka_port,PROXIED://127.0.0.1:$kafka_proxy_port
controller.listener.names=CONTROLLER
inter.broker.listener.name=PLAINTEXT
listener.security.protocol.map=CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT,PROXIED:PLAINTEXT
log.dirs=$dir/data
num.partitions=6
auto.create.topics.enable=false
offsets.topic.replication.factor=1
transaction.state.log.replication.factor=1
transaction.state.log.min.isr=1
group.initial.rebalance.delay.ms=0
EOF
  if [[ ! -e $dir/data/meta.properties ]]; then
    "$java" -cp "$dir/libs-$kafka_version/*" kafka.tools.StorageTool format \
      -t MkU3OEVBNTcwNTJENDM2Qk -c "$dir/server.properties" </dev/null >>"$root/kafka.log" 2>&1 3>&- 9>&-
  fi
  spawn kafka "kafka.Kafka $dir/server.properties" "$java" -Xmx512m \
    -Dorg.slf4j.simpleLogger.defaultLogLevel=warn -Dorg.slf4j.simpleLogger.showDateTime=true \
    -cp "$dir/libs-$kafka_version/*" kafka.Kafka "$dir/server.properties"
}

ready_kafka() { kcat -b "127.0.0.1:$kafka_port" -L -m 5 </dev/null; }
