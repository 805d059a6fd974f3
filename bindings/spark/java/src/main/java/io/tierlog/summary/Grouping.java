package io.tierlog.summary;

import java.io.Serializable;

/**
 * Which records are summed up together.
 *
 * @param byTopic whether topics are apart
 * @param byPartition whether partitions are
 */
public record Grouping(boolean byTopic, boolean byPartition) implements Serializable {}
