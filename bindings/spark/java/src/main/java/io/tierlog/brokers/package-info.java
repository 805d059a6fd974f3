/**
 * Brokers of a cluster, beside the tier: the one place that names classes of Kafka's clients. They come with Spark's own
 * Kafka source, and are there only if that is.
 */
package io.tierlog.brokers;
