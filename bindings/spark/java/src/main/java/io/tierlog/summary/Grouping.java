package io.tierlog.summary;

import java.io.Serializable;

/**
 * How records are grouped.
 *
 * @param byTopic whether topics are apart
 * @param byPartition whether partitions are
 */
public record Grouping(boolean byTopic, boolean byPartition) implements Serializable {}
