package io.tierlog.spark;

import org.apache.spark.sql.connector.metric.CustomMetric;
import org.apache.spark.sql.connector.metric.CustomTaskMetric;
import org.apache.spark.sql.connector.read.Batch;
import org.apache.spark.sql.connector.read.Scan;
import org.apache.spark.sql.connector.read.ScanBuilder;
import org.apache.spark.sql.connector.read.SupportsPushDownFilters;
import org.apache.spark.sql.connector.read.streaming.MicroBatchStream;
import org.apache.spark.sql.internal.connector.SupportsMetadata;
import org.apache.spark.sql.sources.Filter;
import org.apache.spark.sql.types.StructType;
import scala.collection.immutable.Map;
import scala.collection.immutable.Map$;

/**
 * Scans of Spark's Python source whose description says why Python reads; they differ in nothing else.
 *
 * <p>Written out, not by {@link java.lang.reflect.Proxy}: Spark's errors are checked exceptions that no interface
 * declares, and a proxy puts one without a text in their place.
 */
final class PythonScans {
  private PythonScans() {}

  /** The builder with the interfaces that it has in Spark 4.0, or in 4.1 and newer. */
  static ScanBuilder described(ScanBuilder builder, String prefix) {
    return builder instanceof SupportsPushDownFilters filtering
        ? new FilteringBuilder(filtering, prefix)
        : new Builder(builder, prefix);
  }

  private static class Builder implements ScanBuilder {
    private final ScanBuilder target;
    private final String prefix;

    Builder(ScanBuilder target, String prefix) {
      this.target = target;
      this.prefix = prefix;
    }

    @Override
    public Scan build() {
      return new Described(target.build(), prefix);
    }
  }

  private static final class FilteringBuilder extends Builder implements SupportsPushDownFilters {
    private final SupportsPushDownFilters target;

    FilteringBuilder(SupportsPushDownFilters target, String prefix) {
      super(target, prefix);
      this.target = target;
    }

    @Override
    public Filter[] pushFilters(Filter[] filters) {
      return target.pushFilters(filters);
    }

    @Override
    public Filter[] pushedFilters() {
      return target.pushedFilters();
    }
  }

  private record Described(Scan target, String prefix) implements Scan, SupportsMetadata {
    @Override
    public StructType readSchema() {
      return target.readSchema();
    }

    @Override
    public String description() {
      return prefix + " " + target.description();
    }

    @Override
    public Batch toBatch() {
      return target.toBatch();
    }

    @Override
    public MicroBatchStream toMicroBatchStream(String checkpointLocation) {
      return target.toMicroBatchStream(checkpointLocation);
    }

    @Override
    public CustomMetric[] supportedCustomMetrics() {
      return target.supportedCustomMetrics();
    }

    @Override
    public CustomTaskMetric[] reportDriverMetrics() {
      return target.reportDriverMetrics();
    }

    @Override
    public ColumnarSupportMode columnarSupportMode() {
      return target.columnarSupportMode();
    }

    @Override
    public Map<String, String> getMetaData() {
      return target instanceof SupportsMetadata known ? known.getMetaData() : Map$.MODULE$.empty();
    }
  }
}
