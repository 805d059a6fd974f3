package io.tierlog.spark;

import java.lang.reflect.InvocationTargetException;
import java.lang.reflect.Method;
import java.lang.reflect.Proxy;
import java.util.LinkedHashSet;
import java.util.Map;
import java.util.Set;
import org.apache.spark.sql.connector.catalog.Column;
import org.apache.spark.sql.connector.catalog.SupportsRead;
import org.apache.spark.sql.connector.catalog.SupportsWrite;
import org.apache.spark.sql.connector.catalog.Table;
import org.apache.spark.sql.connector.catalog.TableCapability;
import org.apache.spark.sql.connector.expressions.Transform;
import org.apache.spark.sql.connector.read.Scan;
import org.apache.spark.sql.connector.read.ScanBuilder;
import org.apache.spark.sql.connector.write.LogicalWriteInfo;
import org.apache.spark.sql.connector.write.WriteBuilder;
import org.apache.spark.sql.types.StructType;
import org.apache.spark.sql.util.CaseInsensitiveStringMap;

/**
 * Spark's table over the Python source, whose scans say why Python reads.
 *
 * <p>Which interfaces its builders and scans have grows with Spark's minors, so they are wrapped by reflection, all of
 * them.
 */
final class PythonTable implements Table, SupportsRead, SupportsWrite {
  private final Table table;
  private final String prefix;

  PythonTable(Table table, String prefix) {
    this.table = table;
    this.prefix = prefix;
  }

  @Override
  public String name() {
    return table.name();
  }

  @Override
  @SuppressWarnings("deprecation")
  public StructType schema() {
    return table.schema();
  }

  @Override
  public Column[] columns() {
    return table.columns();
  }

  @Override
  public Transform[] partitioning() {
    return table.partitioning();
  }

  @Override
  public Map<String, String> properties() {
    return table.properties();
  }

  @Override
  public Set<TableCapability> capabilities() {
    return table.capabilities();
  }

  @Override
  public ScanBuilder newScanBuilder(CaseInsensitiveStringMap options) {
    return (ScanBuilder) wrapped(((SupportsRead) table).newScanBuilder(options), prefix);
  }

  @Override
  public WriteBuilder newWriteBuilder(LogicalWriteInfo info) {
    return ((SupportsWrite) table).newWriteBuilder(info);
  }

  private static Object wrapped(Object target, String prefix) {
    Set<Class<?>> interfaces = new LinkedHashSet<>();
    for (Class<?> type = target.getClass(); type != null; type = type.getSuperclass()) {
      interfaces.addAll(Set.of(type.getInterfaces()));
    }
    return Proxy.newProxyInstance(
        target.getClass().getClassLoader(),
        interfaces.toArray(new Class<?>[0]),
        (proxy, method, arguments) -> {
          Object result = invoke(target, method, arguments);
          if (method.getName().equals("description") && target instanceof Scan) {
            return prefix + " " + result;
          }
          return result instanceof Scan ? wrapped(result, prefix) : result;
        });
  }

  private static Object invoke(Object target, Method method, Object[] arguments) throws Throwable {
    try {
      return method.invoke(target, arguments);
    } catch (InvocationTargetException e) {
      throw e.getCause();
    }
  }
}
