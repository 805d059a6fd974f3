package io.tierlog.spark;

import org.apache.spark.sql.connector.read.streaming.MicroBatchStream;
import org.apache.spark.sql.types.StructType;

/** The scan of a streaming query: nothing is listed before the query starts. */
final class TierlogStreamScan extends RecordScan {
  private final SourceOptions options;

  TierlogStreamScan(SourceOptions options, StructType columns, String description) {
    super(columns, description);
    this.options = options;
  }

  @Override
  public MicroBatchStream toMicroBatchStream(String checkpointLocation) {
    return new TierlogMicroBatchStream(options, readSchema(), checkpointLocation);
  }
}
