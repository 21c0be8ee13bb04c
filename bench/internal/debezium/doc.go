// Package debezium runs Debezium's outbox connector in Kafka Connect, standalone, as its documentation says.
//
// Connect's libraries come from Maven, once, into the user's cache folder: it needs Java 17 or newer and Maven.
package debezium
