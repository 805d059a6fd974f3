package io.tierlog.plan;

import java.io.Serializable;
import java.util.Map;
import java.util.TreeMap;

/**
 * Where the objects of a plan lie, and what opens them.
 *
 * @param kind {@code "local"}: {@code url} is an absolute folder of this machine; {@code "object"}: an object store.
 * @param url folder, or the store's URL with the prefix below which keys are
 * @param options of the store's client, those that the user gave; secrets among them perhaps. Ambient credentials are
 *     found by the process that reads
 * @param privateKeyFiles key id to a PEM or DER file of an RSA private key
 */
public record StoreLocation(
    String kind, String url, TreeMap<String, String> options, TreeMap<String, String> privateKeyFiles)
    implements Serializable {

  public StoreLocation {
    options = new TreeMap<>(Map.copyOf(options));
    privateKeyFiles = new TreeMap<>(Map.copyOf(privateKeyFiles));
  }

  /** The location without its options, as plans and logs show it. */
  @Override
  public String toString() {
    return "StoreLocation[" + kind + ", " + url + "]";
  }
}
