package io.tierlog.spark;

import io.tierlog.engine.ReaderSettings;
import io.tierlog.engine.RecordSummary;
import io.tierlog.plan.StoreLocation;
import io.tierlog.plan.TaskPlan;
import io.tierlog.summary.TaskSummary;
import io.tierlog.summary.TaskSummary.Group;
import java.io.IOException;
import java.util.Iterator;
import java.util.List;
import java.util.Map;
import org.apache.spark.sql.catalyst.InternalRow;
import org.apache.spark.sql.connector.metric.CustomTaskMetric;
import org.apache.spark.sql.connector.read.PartitionReader;

/** One task's partial rows: one for each group that has records; without grouping exactly one. */
final class HeaderReader implements PartitionReader<InternalRow> {
  private final PushedAggregates aggregates;
  private final TaskSummary task;
  private Iterator<Map.Entry<Group, RecordSummary>> left;
  private InternalRow row;

  HeaderReader(TaskPlan plan, List<StoreLocation> stores, PushedAggregates aggregates, ReaderSettings settings) {
    this.aggregates = aggregates;
    task = new TaskSummary(plan, stores, aggregates.grouping(), aggregates.wanted(), settings);
  }

  @Override
  public boolean next() throws IOException {
    if (left == null) {
      Map<Group, RecordSummary> groups = task.read();
      if (groups.isEmpty() && aggregates.words().groupBy().isEmpty()) {
        groups = Map.of(new Group(null, null), RecordSummary.NONE);
      }
      left = groups.entrySet().iterator();
    }
    if (!left.hasNext()) {
      return false;
    }
    Map.Entry<Group, RecordSummary> entry = left.next();
    row = aggregates.row(entry.getKey(), entry.getValue());
    return true;
  }

  @Override
  public InternalRow get() {
    return row;
  }

  @Override
  public CustomTaskMetric[] currentMetricsValues() {
    return new CustomTaskMetric[] {
      new ScanMetric.Value(BytesFetchedMetric.NAME, task.storedBytes()),
      new ScanMetric.Value(BytesDecodedMetric.NAME, task.decodedBytes()),
      new ScanMetric.Value(RequestsMetric.NAME, task.requests()),
      new ScanMetric.Value(BatchesSkippedMetric.NAME, task.batchesSkipped()),
      new ScanMetric.Value(CrcTimeMetric.NAME, task.crcNs())
    };
  }

  @Override
  public void close() {
    task.close();
  }
}
