package io.tierlog.engine;

import io.tierlog.plan.RangePlan;
import java.util.Set;
import org.apache.spark.sql.types.DataTypes;
import org.apache.spark.sql.vectorized.ColumnarBatch;

/** The one batch of a reader, filled again and again: vectors for the wanted columns, in their order. */
final class RecordBatch {
  private static final int WANT_KEY = 1;
  private static final int WANT_VALUE = 1 << 1;
  private static final int WANT_OFFSET = 1 << 2;
  private static final int WANT_TIMESTAMP = 1 << 3;
  private static final int WANT_TIMESTAMP_TYPE = 1 << 4;
  private static final int WANT_HEADERS = 1 << 5;
  private static final int WANT_LEADER_EPOCH = 1 << 6;

  private final String[] names;
  private final NativeColumn[] columns;
  private final boolean[] notNull;
  private final ColumnarBatch batch;
  private final Object anchor = new Object();
  private int want;

  /**
   * @param names of columns of the table {@code records}; none: rows are only counted
   * @param notNull those that must not hold nulls
   * @throws TierlogException ConfigError: an unknown column
   */
  RecordBatch(String[] names, Set<String> notNull) {
    this.names = names.clone();
    columns = new NativeColumn[names.length];
    this.notNull = new boolean[names.length];
    for (int i = 0; i < names.length; i++) {
      columns[i] = column(names[i]);
      columns[i].keep(anchor);
      this.notNull[i] = notNull.contains(names[i]);
    }
    batch = new ColumnarBatch(columns);
  }

  private NativeColumn column(String name) {
    switch (name) {
      case "key":
        want |= WANT_KEY;
        return new BytesColumn(DataTypes.BinaryType, Report.KEY, true);
      case "value":
        want |= WANT_VALUE;
        return new BytesColumn(DataTypes.BinaryType, Report.VALUE, true);
      case "offset":
        want |= WANT_OFFSET;
        return new LongColumn(DataTypes.LongType, Report.OFFSET);
      case "timestamp":
        want |= WANT_TIMESTAMP;
        return new LongColumn(DataTypes.TimestampType, Report.TIMESTAMP);
      case "timestampType":
        want |= WANT_TIMESTAMP_TYPE;
        return new IntColumn(Report.TIMESTAMP_TYPE);
      case "headers":
        want |= WANT_HEADERS;
        return new HeadersColumn();
      case "leaderEpoch":
        want |= WANT_LEADER_EPOCH;
        return new IntColumn(Report.LEADER_EPOCH);
      case "partition":
        return new ConstantColumn.Number();
      case "topic", "segment":
        return new ConstantColumn.Text();
      default:
        throw new TierlogException("ConfigError", "table records has no column " + Texts.quoted(name));
    }
  }

  /** Columns that the decoder must give: TL_COLUMN_* of decode.h. */
  int want() {
    return want;
  }

  /** Sets the columns that have one value for all rows of a range. */
  void begin(RangePlan range) {
    for (int i = 0; i < columns.length; i++) {
      if (columns[i] instanceof ConstantColumn.Number number) {
        number.set(range.segment().partition());
      } else if (columns[i] instanceof ConstantColumn.Text text) {
        text.set(names[i].equals("topic") ? range.segment().topic() : range.segment().label());
      }
    }
  }

  /**
   * Takes over the rows of a decoder's step.
   *
   * @throws TierlogException ConfigError: a null where the user's schema says there is none
   */
  void bind(Report report) {
    for (int i = 0; i < columns.length; i++) {
      columns[i].bind(report);
      if (notNull[i] && columns[i].hasNull()) {
        throw new TierlogException(
            "ConfigError", "column " + names[i] + " is NOT NULL in the given schema, and holds nulls");
      }
    }
    batch.setNumRows(report.getInt(Report.ROWS));
  }

  /** An object that is reachable as long as anything that reads the rows is. */
  Object anchor() {
    return anchor;
  }

  ColumnarBatch batch() {
    return batch;
  }
}
