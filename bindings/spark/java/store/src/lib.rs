//! The native half of `io.tierlog.engine.ObjectStoreClient`: ranges of objects into native memory.
//!
//! Belongs here: clients of S3, Google Cloud Storage and Azure, what crosses into the JVM, and what the cryptography that
//! TLS needs does for chunks. Does not belong here: windows, retries of what `object_store` gave up, formats. Nothing here
//! knows Kafka.
//!
//! Numbers and byte arrays cross the border, no Java object; a panic ends there as a `StoreError`.

mod aws_profile;
mod clients;
mod decrypt;
mod failure;
mod opening;
mod own_hosts;
mod transfer;

use std::collections::BTreeMap;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::Duration;

use jni_sys::{JNIEnv, JavaVM, jbyteArray, jclass, jint, jlong, jsize};

use failure::Failure;
use transfer::Target;

/// Answers of `await0` that are not a number of bytes.
const RUNNING: jlong = -1;
const FAILED: jlong = -2;
const UNKNOWN: jlong = -3;

/// Answers of `open0` of `NativeCipher` that are not a number of bytes.
const MALFORMED: jlong = -1;
const NOT_AUTHENTIC: jlong = -2;

/// Runs a closure, whose panic becomes a failure.
fn guarded<T>(work: impl FnOnce() -> Result<T, Failure>) -> Result<T, Failure> {
    catch_unwind(AssertUnwindSafe(work)).unwrap_or_else(|cause| {
        let said = cause.downcast_ref::<&str>().map(|text| (*text).to_owned());
        let said = said.or_else(|| cause.downcast_ref::<String>().cloned()).unwrap_or_default();
        Err(Failure::store(format!("the store client failed: {said}")))
    })
}

/// # Safety
/// `env` is this thread's; `array` is a byte array or null.
unsafe fn bytes_of(env: *mut JNIEnv, array: jbyteArray) -> Option<Vec<u8>> {
    if array.is_null() {
        return None;
    }
    // SAFETY: as promised to this function; the region is the whole array.
    unsafe {
        let table = &(**env).v1_1;
        let length = (table.GetArrayLength)(env, array);
        let mut bytes = vec![0_u8; usize::try_from(length).ok()?];
        (table.GetByteArrayRegion)(env, array, 0, length, bytes.as_mut_ptr().cast());
        Some(bytes)
    }
}

/// A new byte array; null with a pending OutOfMemoryError if the JVM has no memory.
///
/// # Safety
/// `env` is this thread's.
unsafe fn new_bytes(env: *mut JNIEnv, bytes: &[u8]) -> jbyteArray {
    let Ok(length) = jsize::try_from(bytes.len()) else { return std::ptr::null_mut() };
    // SAFETY: as promised to this function; the region is the whole array.
    unsafe {
        let table = &(**env).v1_1;
        let array = (table.NewByteArray)(env, length);
        if !array.is_null() {
            (table.SetByteArrayRegion)(env, array, 0, length, bytes.as_ptr().cast());
        }
        array
    }
}

/// Reads texts, each behind its length as `u32` (big-endian). None: the bytes are cut short, or not UTF-8.
fn texts(mut bytes: &[u8]) -> Option<Vec<String>> {
    let mut found = Vec::new();
    while !bytes.is_empty() {
        let (length, rest) = bytes.split_first_chunk::<4>()?;
        let (text, rest) = rest.split_at_checked(u32::from_be_bytes(*length) as usize)?;
        found.push(String::from_utf8(text.to_vec()).ok()?);
        bytes = rest;
    }
    Some(found)
}

fn open(request: Option<Vec<u8>>) -> Result<i64, Failure> {
    let malformed = || Failure::store("a malformed request to open a store");
    let mut found = texts(&request.ok_or_else(malformed)?).ok_or_else(malformed)?.into_iter();
    let url = found.next().ok_or_else(malformed)?;
    let mut options = BTreeMap::new();
    while let Some(name) = found.next() {
        options.insert(name, found.next().ok_or_else(malformed)?);
    }
    clients::open_client(url, options)
}

/// `byte[] open0(byte[])`: URL, then names and values of options, as `texts` reads them. Answers 0 and the number of
/// the client, or 1 and `kind`, a line feed, the message.
#[unsafe(no_mangle)]
pub extern "system" fn Java_io_tierlog_engine_ObjectStoreClient_open0(
    env: *mut JNIEnv,
    _class: jclass,
    request: jbyteArray,
) -> jbyteArray {
    // SAFETY: the JVM gives this thread's environment and an array of the declared type.
    let request = unsafe { bytes_of(env, request) };
    let answer = match guarded(|| open(request)) {
        Ok(client) => [&[0], client.to_be_bytes().as_slice()].concat(),
        Err(failure) => [&[1], told(&failure).as_slice()].concat(),
    };
    // SAFETY: as above.
    unsafe { new_bytes(env, &answer) }
}

fn told(failure: &Failure) -> Vec<u8> {
    format!("{}\n{}", failure.kind, failure.text).into_bytes()
}

/// `void close0(long client)`.
#[unsafe(no_mangle)]
pub extern "system" fn Java_io_tierlog_engine_ObjectStoreClient_close0(
    _env: *mut JNIEnv,
    _class: jclass,
    client: jlong,
) {
    let _ = guarded(|| {
        clients::close_client(client);
        Ok(())
    });
}

/// `long begin0(long client, byte[] key, long start, long end, long address)`: the number of the transfer; -3: the
/// client is closed, or the arguments are not a range.
#[unsafe(no_mangle)]
pub extern "system" fn Java_io_tierlog_engine_ObjectStoreClient_begin0(
    env: *mut JNIEnv,
    _class: jclass,
    client: jlong,
    key: jbyteArray,
    start: jlong,
    end: jlong,
    address: jlong,
) -> jlong {
    // SAFETY: the JVM gives this thread's environment and an array of the declared type.
    let key = unsafe { bytes_of(env, key) };
    let work = || {
        let key = key.and_then(|bytes| String::from_utf8(bytes).ok());
        let (Some(key), Ok(from), Ok(to)) = (key, u64::try_from(start), u64::try_from(end)) else { return Ok(None) };
        if to < from || address == 0 {
            return Ok(None);
        }
        // SAFETY: Java's side of the contract: the memory stays until await0 tells an outcome or end0 returns.
        let target = unsafe { Target::new(address as *mut u8, to - from) };
        Ok(clients::begin(client, key, from, to, target))
    };
    guarded(work).ok().flatten().unwrap_or(UNKNOWN)
}

/// `long await0(long transfer, long milliseconds)`: bytes read; -1: it still runs; -2: `failure0` says why it failed;
/// -3: no such transfer.
#[unsafe(no_mangle)]
pub extern "system" fn Java_io_tierlog_engine_ObjectStoreClient_await0(
    _env: *mut JNIEnv,
    _class: jclass,
    transfer: jlong,
    milliseconds: jlong,
) -> jlong {
    let limit = Duration::from_millis(u64::try_from(milliseconds).unwrap_or(0));
    let work = || {
        Ok(match clients::transfer(transfer).map(|transfer| transfer.wait(limit)) {
            None => UNKNOWN,
            Some(None) => RUNNING,
            Some(Some(Err(_))) => FAILED,
            Some(Some(Ok(bytes))) => jlong::try_from(bytes).unwrap_or(FAILED),
        })
    };
    guarded(work).unwrap_or(UNKNOWN)
}

/// `byte[] failure0(long transfer)`: `kind`, a line feed, the message; null: it did not fail.
#[unsafe(no_mangle)]
pub extern "system" fn Java_io_tierlog_engine_ObjectStoreClient_failure0(
    env: *mut JNIEnv,
    _class: jclass,
    transfer: jlong,
) -> jbyteArray {
    let found = guarded(|| Ok(clients::transfer(transfer).and_then(|transfer| transfer.wait(Duration::ZERO))));
    match found {
        // SAFETY: the JVM gives this thread's environment.
        Ok(Some(Err(failure))) | Err(failure) => unsafe { new_bytes(env, &told(&failure)) },
        Ok(_) => std::ptr::null_mut(),
    }
}

/// `void end0(long transfer)`: afterwards its memory is not written any more.
#[unsafe(no_mangle)]
pub extern "system" fn Java_io_tierlog_engine_ObjectStoreClient_end0(
    _env: *mut JNIEnv,
    _class: jclass,
    transfer: jlong,
) {
    let _ = guarded(|| {
        clients::end(transfer);
        Ok(())
    });
}

/// `long count0(int which)`: 0 clients that are held, 1 transfers, 2 threads.
#[unsafe(no_mangle)]
pub extern "system" fn Java_io_tierlog_engine_ObjectStoreClient_count0(
    _env: *mut JNIEnv,
    _class: jclass,
    which: jint,
) -> jlong {
    let counts = guarded(|| Ok(clients::counts())).unwrap_or_default();
    let count = match which {
        0 => counts.0,
        1 => counts.1,
        _ => counts.2,
    };
    jlong::try_from(count).unwrap_or(jlong::MAX)
}

/// `long open0(byte[] key, byte[] aad, long address, long size)` of `NativeCipher`: bytes behind the IV that are plain now;
/// -1: no key of AES-256, or no unit; -2: not authentic.
#[unsafe(no_mangle)]
pub extern "system" fn Java_io_tierlog_engine_NativeCipher_open0(
    env: *mut JNIEnv,
    _class: jclass,
    key: jbyteArray,
    aad: jbyteArray,
    address: jlong,
    size: jlong,
) -> jlong {
    // SAFETY: the JVM gives this thread's environment and arrays of the declared type.
    let (key, aad) = unsafe { (bytes_of(env, key), bytes_of(env, aad)) };
    let work = || {
        let (Some(key), Some(aad), Ok(size)) = (key, aad, usize::try_from(size)) else {
            return Ok(Err(decrypt::Refused::Malformed));
        };
        if address == 0 {
            return Ok(Err(decrypt::Refused::Malformed));
        }
        // SAFETY: Java's side of the contract: so many bytes lie there, and nobody else looks at them meanwhile.
        let unit = unsafe { std::slice::from_raw_parts_mut(address as *mut u8, size) };
        Ok(decrypt::open_unit(&key, &aad, unit))
    };
    match guarded(work) {
        Ok(Ok(plain)) => jlong::try_from(plain).unwrap_or(MALFORMED),
        Ok(Err(decrypt::Refused::NotAuthentic)) => NOT_AUTHENTIC,
        Ok(Err(decrypt::Refused::Malformed)) | Err(_) => MALFORMED,
    }
}

/// The class loader goes, and the JVM will unmap this library: no thread may be in it. Where one will not end in time
/// the library stays mapped instead.
#[unsafe(no_mangle)]
pub extern "system" fn JNI_OnUnload(_vm: *mut JavaVM, _reserved: *mut std::ffi::c_void) {
    if !guarded(|| Ok(clients::shut_down())).unwrap_or(false) {
        keep_mapped();
    }
}

fn keep_mapped() {
    let mut about = std::mem::MaybeUninit::<libc::Dl_info>::zeroed();
    // SAFETY: dladdr fills `about` where it answers with other than 0; dlopen takes the path that it gave.
    unsafe {
        if libc::dladdr(keep_mapped as *const libc::c_void, about.as_mut_ptr()) != 0 {
            libc::dlopen(about.assume_init().dli_fname, libc::RTLD_NOW | libc::RTLD_NOLOAD | libc::RTLD_NODELETE);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_that_are_cut_short_are_refused() {
        assert_eq!(texts(b"\0\0\0\x02ab\0\0\0\0"), Some(vec!["ab".to_owned(), String::new()]));
        assert_eq!(texts(b""), Some(vec![]));
        for cut in [&b"\0\0"[..], b"\0\0\0\x02a", b"\xff\xff\xff\xffa", b"\0\0\0\x01\xff"] {
            assert_eq!(texts(cut), None);
        }
    }

    #[test]
    fn a_panic_ends_at_the_border() {
        let failure = guarded::<()>(|| panic!("broken {}", 1)).unwrap_err();
        assert_eq!(failure, Failure::store("the store client failed: broken 1"));
    }

    #[test]
    fn numbers_that_are_not_known_are_errors() {
        assert!(clients::transfer(77).is_none());
        clients::end(77);
        clients::close_client(77);
        let mut memory = [0_u8; 1];
        // SAFETY: no transfer begins.
        let target = unsafe { Target::new(memory.as_mut_ptr(), 1) };
        assert!(clients::begin(77, "k".to_owned(), 0, 1, target).is_none());
    }
}
