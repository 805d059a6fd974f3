package io.tierlog.kafka;

import java.io.Closeable;
import java.io.IOException;
import java.lang.management.ManagementFactory;
import java.util.HashMap;
import java.util.Map;
import java.util.Set;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.locks.ReentrantLock;
import javax.management.Attribute;
import javax.management.AttributeList;
import javax.management.AttributeNotFoundException;
import javax.management.DynamicMBean;
import javax.management.InstanceAlreadyExistsException;
import javax.management.JMException;
import javax.management.MBeanAttributeInfo;
import javax.management.MBeanInfo;
import javax.management.MBeanServer;
import javax.management.ObjectName;
import org.apache.kafka.server.log.remote.storage.RemoteLogSegmentMetadata;
import org.slf4j.Logger;
import org.slf4j.LoggerFactory;

/**
 * The sidecar's metrics as MBeans of the broker. They are asked for at the start, when somebody looks, and when a partition was
 * met for the first time, since it may have MBeans of its own; but for the start at most once a second.
 */
final class Metrics implements Closeable {
  private static final Logger LOG = LoggerFactory.getLogger(Metrics.class);
  private static final long FRESH_NANOS = TimeUnit.SECONDS.toNanos(1);
  private static final long ANSWER_MILLIS_MAX = 2_000;
  private static final int SEEN_MAX = 100_000;

  private final SidecarClient client;
  private final MBeanServer server = ManagementFactory.getPlatformMBeanServer();
  private final Set<String> seen = ConcurrentHashMap.newKeySet();

  private final ReentrantLock lock = new ReentrantLock();

  // Guarded by the lock:
  private final Map<String, ObjectName> registered = new HashMap<>();
  private boolean closed;

  private volatile long askedNanos = System.nanoTime() - FRESH_NANOS;

  /** Whether there may be MBeans that were not asked for yet. */
  private volatile boolean hasNews;

  /** Replaced, never changed. */
  private volatile Map<String, Map<String, Double>> values = Map.of();

  Metrics(SidecarClient client) {
    this.client = client;
  }

  /** Notes a call: of the first of its kind for a partition, the sidecar may have metrics that it had not. */
  void saw(String kind, RemoteLogSegmentMetadata metadata) {
    String key = kind + " " + metadata.remoteLogSegmentId().topicIdPartition().topicPartition();
    if (!seen.contains(key) && seen.size() < SEEN_MAX && seen.add(key)) {
      hasNews = true;
    }
    // A broker that meets thousands of partitions at once asks a few times, and no call waits for another's asking.
    if (hasNews && isDue() && !Thread.currentThread().isInterrupted() && lock.tryLock()) {
      try {
        refresh();
      } finally {
        lock.unlock();
      }
    }
  }

  private boolean isDue() {
    return System.nanoTime() - askedNanos >= FRESH_NANOS;
  }

  /** Asks for all metrics, and registers those that are new. What was known stays if that fails. */
  void refresh() {
    lock.lock();
    try {
      ask();
    } finally {
      lock.unlock();
    }
  }

  private void ask() {
    hasNews = false;
    askedNanos = System.nanoTime();
    if (closed) {
      return;
    }
    try {
      byte[] json = client.metrics(ANSWER_MILLIS_MAX);
      if (json != null) {
        values = MetricsJson.read(json);
      }
    } catch (IOException | IllegalArgumentException | OutOfMemoryError e) {
      LOG.debug("tierlog: no metrics of the sidecar", e);
      return;
    }
    for (String name : values.keySet()) {
      if (!registered.containsKey(name)) {
        register(name);
      }
    }
  }

  @Override
  public void close() {
    lock.lock();
    try {
      closed = true;
      for (ObjectName name : registered.values()) {
        unregister(name);
      }
      registered.clear();
    } finally {
      lock.unlock();
    }
  }

  private void unregister(ObjectName name) {
    try {
      server.unregisterMBean(name);
    } catch (JMException e) {
      LOG.debug("tierlog: the MBean {} is gone already", name, e);
    }
  }

  private void register(String name) {
    try {
      ObjectName made = new ObjectName(name);
      server.registerMBean(new Bean(name), made);
      registered.put(name, made);
    } catch (InstanceAlreadyExistsException e) {
      LOG.warn("tierlog: there is an MBean {} already: the sidecar's is not shown", name);
    } catch (JMException e) {
      LOG.warn("tierlog: the MBean {} cannot be registered", name, e);
    }
  }

  private Map<String, Double> attributes(String name) {
    if (isDue()) {
      refresh();
    }
    return values.getOrDefault(name, Map.of());
  }

  private final class Bean implements DynamicMBean {
    private final String name;

    Bean(String name) {
      this.name = name;
    }

    @Override
    public Object getAttribute(String attribute) throws AttributeNotFoundException {
      Double found = attributes(name).get(attribute);
      if (found == null) {
        throw new AttributeNotFoundException(attribute);
      }
      return found;
    }

    @Override
    public AttributeList getAttributes(String[] wanted) {
      AttributeList found = new AttributeList();
      Map<String, Double> all = attributes(name);
      for (String each : wanted) {
        if (all.containsKey(each)) {
          found.add(new Attribute(each, all.get(each)));
        }
      }
      return found;
    }

    @Override
    public MBeanInfo getMBeanInfo() {
      MBeanAttributeInfo[] infos =
          attributes(name).keySet().stream()
              .map(each -> new MBeanAttributeInfo(each, double.class.getName(), each, true, false, false))
              .toArray(MBeanAttributeInfo[]::new);
      return new MBeanInfo(Metrics.class.getName(), name, infos, null, null, null);
    }

    @Override
    public void setAttribute(Attribute attribute) throws AttributeNotFoundException {
      throw new AttributeNotFoundException(attribute.getName() + " is read only");
    }

    @Override
    public AttributeList setAttributes(AttributeList attributes) {
      return new AttributeList();
    }

    @Override
    public Object invoke(String action, Object[] arguments, String[] signature) {
      throw new UnsupportedOperationException(action);
    }
  }
}
