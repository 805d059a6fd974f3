/**
 * Kafka's remote storage manager, whose work a Tierlog sidecar does: requests over a Unix-domain socket, by the protocol of
 * docs/sidecar-protocol.md.
 *
 * <p>Belongs here: the interface's contract towards the broker (errors, interrupts, streams), connections, and the life of a
 * sidecar that the plugin starts. Does not belong here: objects, stores, keys, caches; and any dependency that a broker does
 * not bring.
 */
package io.tierlog.kafka;
