//! One range on its way into memory that the JVM owns.
//!
//! The memory is written under the transfer's lock and only while nobody has cancelled it: once `cancel` returns, it is
//! the caller's again, whatever the I/O thread still does.

use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use futures_util::StreamExt;
use object_store::{GetOptions, GetRange};
use tokio::task::AbortHandle;

use crate::failure::{Failure, is_behind_end, translate};
use crate::opening::Opened;

/// The memory that bytes are written to.
pub struct Target {
    at: *mut u8,
    left: u64,
}

// SAFETY: the pointer is used under the lock of the transfer that owns it, one thread at a time.
unsafe impl Send for Target {}

impl Target {
    /// # Safety
    /// `left` bytes at `at` are writable until the transfer ends or is cancelled.
    pub unsafe fn new(at: *mut u8, left: u64) -> Self {
        Target { at, left }
    }
}

struct State {
    /// The target; None once the transfer is over.
    target: Option<Target>,
    task: Option<AbortHandle>,
    outcome: Option<Result<u64, Failure>>,
}

/// One range on its way into memory. Thread safety: any number of threads.
pub struct Transfer {
    state: Mutex<State>,
    ended: Condvar,
}

impl Transfer {
    /// A transfer that has not begun.
    pub fn new(target: Target) -> Self {
        let state = State { target: Some(target), task: None, outcome: None };
        Transfer { state: Mutex::new(state), ended: Condvar::new() }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Sets the task that `cancel` ends.
    pub fn set_task(&self, task: AbortHandle) {
        let mut state = self.lock();
        if state.outcome.is_some() {
            task.abort();
        } else {
            state.task = Some(task);
        }
    }

    /// Appends bytes; false if the transfer was cancelled, an error if they do not fit.
    fn write(&self, bytes: &[u8]) -> Result<bool, ()> {
        let mut state = self.lock();
        let Some(target) = &mut state.target else { return Ok(false) };
        let length = bytes.len() as u64;
        if length > target.left {
            return Err(());
        }
        // SAFETY: there is a target, so its memory is writable and holds `left` bytes more; the two do not overlap.
        unsafe {
            std::ptr::copy_nonoverlapping(bytes.as_ptr(), target.at, bytes.len());
            target.at = target.at.add(bytes.len());
        }
        target.left -= length;
        Ok(true)
    }

    /// Sets the outcome; the first one counts.
    pub fn finish(&self, outcome: Result<u64, Failure>) {
        let mut state = self.lock();
        state.target = None;
        state.task = None;
        state.outcome.get_or_insert(outcome);
        self.ended.notify_all();
    }

    /// Ends the transfer now; afterwards its memory is not written any more.
    pub fn cancel(&self) {
        let task = self.lock().task.take();
        self.finish(Err(Failure::store("cancelled")));
        if let Some(task) = task {
            task.abort();
        }
    }

    /// Waits for the outcome: the bytes read, or the failure. None if there is none after `limit`.
    pub fn wait(&self, limit: Duration) -> Option<Result<u64, Failure>> {
        let state = self.lock();
        let (state, _) = self
            .ended
            .wait_timeout_while(state, limit, |state| state.outcome.is_none())
            .unwrap_or_else(PoisonError::into_inner);
        state.outcome.clone()
    }
}

/// Fails a transfer whose task ended without an outcome: it panicked, or the runtime was shut down.
struct Unfinished<'a>(&'a Transfer);

impl Drop for Unfinished<'_> {
    fn drop(&mut self) {
        self.0.finish(Err(Failure::store("the I/O thread of the store client gave this request up")));
    }
}

/// Reads `start..end` of an object into the transfer's target.
///
/// Fewer bytes come only where the object ends before; none where it ends before `start`.
pub async fn run(store: &Opened, key: &str, start: u64, end: u64, transfer: &Transfer) {
    let unfinished = Unfinished(transfer);
    let outcome = read(store, key, start, end, transfer).await;
    transfer.finish(outcome);
    drop(unfinished);
}

async fn read(store: &Opened, key: &str, start: u64, end: u64, transfer: &Transfer) -> Result<u64, Failure> {
    if start >= end {
        return Ok(0);
    }
    let place = format!("{}/{key}", store.name);
    let told = |error: &object_store::Error| translate(error, &place);
    let path = store.path(key).map_err(|error| told(&error))?;
    let options = GetOptions { range: Some(GetRange::Bounded(start..end)), ..GetOptions::default() };
    let answer = match store.store.get_opts(&path, options).await {
        Err(error) if is_behind_end(&error) => return Ok(0),
        answer => answer.map_err(|error| told(&error))?,
    };
    let mut body = answer.into_stream();
    let mut total = 0;
    while let Some(bytes) = body.next().await {
        let bytes = bytes.map_err(|error| told(&error))?;
        match transfer.write(&bytes) {
            Ok(true) => total += bytes.len() as u64,
            Ok(false) => return Err(Failure::store(format!("{place}: cancelled"))),
            Err(()) => {
                return Err(Failure::store(format!("{place}: the store sent more than bytes {start} to {end}")));
            }
        }
    }
    Ok(total)
}

#[cfg(test)]
mod tests {
    use super::*;
    use object_store::memory::InMemory;
    use object_store::{ObjectStore, ObjectStoreExt};
    use std::sync::Arc;

    const NOW: Duration = Duration::ZERO;

    fn target(memory: &mut [u8]) -> Target {
        // SAFETY: the memory of a test outlives its transfer.
        unsafe { Target::new(memory.as_mut_ptr(), memory.len() as u64) }
    }

    fn fetched(key: &str, start: u64, end: u64, size: usize) -> (Result<u64, Failure>, Vec<u8>) {
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).build().unwrap();
        let mut memory = vec![0; size];
        let transfer = Transfer::new(target(&mut memory));
        runtime.block_on(async {
            let store = InMemory::new();
            store.put(&"folder/there".into(), "0123456789".into()).await.unwrap();
            let store: Arc<dyn ObjectStore> = Arc::new(store);
            let opened = Opened { store, name: "s3://b/folder".into(), prefix: "folder".into() };
            run(&opened, key, start, end, &transfer).await;
        });
        (transfer.wait(NOW).unwrap(), memory)
    }

    #[test]
    fn the_exact_range_is_read() {
        assert_eq!(fetched("there", 2, 5, 4), (Ok(3), b"234\0".to_vec()));
    }

    #[test]
    fn an_object_that_ends_early_gives_what_it_has() {
        assert_eq!(fetched("there", 8, 20, 12).0, Ok(2));
        assert_eq!(fetched("there", 10, 20, 10).0, Ok(0));
    }

    #[test]
    fn a_missing_object_is_named() {
        let failure = fetched("gone", 0, 1, 1).0.unwrap_err();
        assert_eq!((failure.kind, failure.text.as_str()), ("ObjectNotFoundError", "s3://b/folder/gone: not found"));
        assert_eq!(fetched("a//b", 0, 1, 1).0.unwrap_err().kind, "StoreError");
    }

    #[test]
    fn more_than_fits_is_refused_and_not_written() {
        let (outcome, memory) = fetched("there", 0, 10, 4);
        assert_eq!(outcome.unwrap_err().kind, "StoreError");
        assert_eq!(memory, [0; 4]);
    }

    #[test]
    fn nothing_is_written_after_a_cancel() {
        let mut memory = [0; 4];
        let transfer = Transfer::new(target(&mut memory));
        assert_eq!(transfer.write(b"ab"), Ok(true));
        transfer.cancel();
        assert_eq!(transfer.write(b"cd"), Ok(false));
        assert_eq!(memory, *b"ab\0\0");
        assert!(transfer.wait(NOW).unwrap().is_err());
    }

    #[test]
    fn a_task_that_dies_ends_its_transfer() {
        let mut memory = [0; 1];
        let transfer = Transfer::new(target(&mut memory));
        assert!(transfer.wait(NOW).is_none());
        drop(Unfinished(&transfer));
        assert_eq!(transfer.wait(NOW).unwrap().unwrap_err().kind, "StoreError");
    }
}
