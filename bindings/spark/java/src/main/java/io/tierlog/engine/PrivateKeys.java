package io.tierlog.engine;

import java.io.ByteArrayOutputStream;
import java.math.BigInteger;
import java.nio.charset.StandardCharsets;
import java.security.GeneralSecurityException;
import java.security.KeyFactory;
import java.security.interfaces.RSAPrivateKey;
import java.security.spec.PKCS8EncodedKeySpec;
import java.security.spec.X509EncodedKeySpec;
import java.util.Base64;
import java.util.regex.Matcher;
import java.util.regex.Pattern;

/** RSA private keys from files: PEM or DER, PKCS#8 or PKCS#1, unencrypted. */
final class PrivateKeys {
  private static final Pattern PEM =
      Pattern.compile("-----BEGIN ([A-Z ]+)-----([^-]*)-----END \\1-----", Pattern.DOTALL);
  /** An OAEP data key of 32 bytes fits no smaller modulus. */
  private static final int MODULUS_BITS_MIN = 1296;
  /** Version 0 and the algorithm rsaEncryption, which stand before a PKCS#1 key in PKCS#8. */
  private static final byte[] PKCS8_HEAD = {
    2, 1, 0, 0x30, 0x0d, 6, 9, 0x2a, (byte) 0x86, 0x48, (byte) 0x86, (byte) 0xf7, 0x0d, 1, 1, 1, 5, 0
  };

  private PrivateKeys() {}

  /**
   * @param place what to call the key in messages
   * @throws TierlogException ConfigError
   */
  static RSAPrivateKey parse(byte[] content, String place) {
    byte[] der = der(content);
    RSAPrivateKey key = der == null ? null : privateKey(der);
    if (key == null && der != null) {
      key = privateKey(wrapped(der));
    }
    if (key == null) {
      // The cause is left out on purpose: it may quote what it could not parse.
      String what = der != null && isPublic(der) ? "this is a public key" : "not an unencrypted RSA private key in PEM or DER";
      throw new TierlogException("ConfigError", place + ": " + what);
    }
    int bits = key.getModulus().bitLength();
    if (bits < MODULUS_BITS_MIN) {
      throw new TierlogException(
          "ConfigError", place + ": " + bits + " bits, at least " + MODULUS_BITS_MIN + " are needed");
    }
    return key;
  }

  private static byte[] der(byte[] content) {
    Matcher pem = PEM.matcher(new String(content, StandardCharsets.ISO_8859_1));
    if (!pem.find()) {
      return content;
    }
    try {
      return Base64.getMimeDecoder().decode(pem.group(2));
    } catch (IllegalArgumentException notBase64) {
      return null;
    }
  }

  private static RSAPrivateKey privateKey(byte[] pkcs8) {
    try {
      return (RSAPrivateKey) KeyFactory.getInstance("RSA").generatePrivate(new PKCS8EncodedKeySpec(pkcs8));
    } catch (GeneralSecurityException notOne) {
      return null;
    }
  }

  private static boolean isPublic(byte[] der) {
    try {
      KeyFactory.getInstance("RSA").generatePublic(new X509EncodedKeySpec(der));
      return true;
    } catch (GeneralSecurityException notOne) {
      return false;
    }
  }

  /** A PKCS#1 key as PKCS#8. */
  private static byte[] wrapped(byte[] pkcs1) {
    ByteArrayOutputStream body = new ByteArrayOutputStream();
    body.writeBytes(PKCS8_HEAD);
    body.writeBytes(element(4, pkcs1));
    return element(0x30, body.toByteArray());
  }

  private static byte[] element(int tag, byte[] content) {
    ByteArrayOutputStream out = new ByteArrayOutputStream();
    out.write(tag);
    byte[] size = BigInteger.valueOf(content.length).toByteArray();
    int first = size[0] == 0 && size.length > 1 ? 1 : 0;
    if (content.length >= 128) {
      out.write(0x80 | size.length - first);
    }
    out.write(size, first, size.length - first);
    out.writeBytes(content);
    return out.toByteArray();
  }
}
