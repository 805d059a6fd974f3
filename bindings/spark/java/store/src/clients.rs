//! The clients and transfers that Java holds by number. An unknown number is an error, never a crash.
//!
//! One runtime with one I/O thread, begun by the first client. Clients of equal URL and options are one: its
//! connections serve the tasks of an executor one after another. A client is dropped when nobody has held it for a while.

use std::collections::{BTreeMap, HashMap};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::runtime::{Builder, Runtime};

use crate::failure::Failure;
use crate::opening::{Opened, open, with_shared};
use crate::transfer::{Target, Transfer, run};

/// How long connections wait for the next task of an executor.
const IDLE: Duration = Duration::from_secs(30);
/// How long the last requests may take to notice that they are cancelled when the library goes.
const SHUTDOWN: Duration = Duration::from_secs(2);
const BLOCKING_THREADS: usize = 4;

struct Client {
    store: Arc<Opened>,
    request: (String, BTreeMap<String, String>),
    holders: usize,
    /// How often nobody held it, so that an old alarm does not end a new wait.
    rests: u64,
}

#[derive(Default)]
struct All {
    runtime: Option<Runtime>,
    clients: HashMap<i64, Client>,
    transfers: HashMap<i64, Arc<Transfer>>,
    last: i64,
}

impl All {
    fn next(&mut self) -> i64 {
        self.last += 1;
        self.last
    }
}

static ALL: Mutex<Option<All>> = Mutex::new(None);
static THREADS: AtomicUsize = AtomicUsize::new(0);

fn with_all<T>(work: impl FnOnce(&mut All) -> T) -> T {
    let mut all: MutexGuard<'_, Option<All>> = ALL.lock().unwrap_or_else(PoisonError::into_inner);
    work(all.get_or_insert_default())
}

fn start_runtime() -> Result<Runtime, Failure> {
    Builder::new_multi_thread()
        .worker_threads(1)
        .max_blocking_threads(BLOCKING_THREADS)
        .thread_keep_alive(Duration::from_secs(1))
        .thread_name("tierlog-store")
        .on_thread_start(|| {
            THREADS.fetch_add(1, Ordering::Relaxed);
        })
        .on_thread_stop(|| {
            THREADS.fetch_sub(1, Ordering::Relaxed);
        })
        .enable_all()
        .build()
        .map_err(|error| Failure::store(format!("the store client cannot start its I/O thread: {error}")))
}

/// Opens, or joins, the client of a URL; `close_client` gives it back. Keys of files that have changed are another client's.
pub fn open_client(url: String, options: BTreeMap<String, String>) -> Result<i64, Failure> {
    let options = with_shared(&url, options);
    with_all(|all| {
        if all.runtime.is_none() {
            all.runtime = Some(start_runtime()?);
        }
        let request = (url, options);
        if let Some((id, client)) = all.clients.iter_mut().find(|(_, client)| client.request == request) {
            client.holders += 1;
            return Ok(*id);
        }
        // Clients of HTTP look for the runtime that they are made in.
        let guard = all.runtime.as_ref().map(|runtime| runtime.enter());
        let store = Arc::new(open(&request.0, request.1.clone())?);
        drop(guard);
        let id = all.next();
        all.clients.insert(id, Client { store, request, holders: 1, rests: 0 });
        Ok(id)
    })
}

/// Releases a client.
pub fn close_client(id: i64) {
    with_all(|all| {
        let Some(client) = all.clients.get_mut(&id).filter(|client| client.holders > 0) else { return };
        client.holders -= 1;
        if client.holders > 0 {
            return;
        }
        client.rests += 1;
        let rest = client.rests;
        if let Some(runtime) = &all.runtime {
            runtime.spawn(async move {
                tokio::time::sleep(IDLE).await;
                drop(take_idle(id, rest)); // outside the lock
            });
        }
    });
}

fn take_idle(id: i64, rest: u64) -> Option<Client> {
    with_all(|all| {
        let idle = all.clients.get(&id).is_some_and(|client| client.holders == 0 && client.rests == rest);
        if idle { all.clients.remove(&id) } else { None }
    })
}

/// Begins to read `start..end`; None if there is no such client.
pub fn begin(client: i64, key: String, start: u64, end: u64, target: Target) -> Option<i64> {
    with_all(|all| {
        let store = Arc::clone(&all.clients.get(&client).filter(|client| client.holders > 0)?.store);
        let transfer = Arc::new(Transfer::new(target));
        let shared = Arc::clone(&transfer);
        let task = all.runtime.as_ref()?.spawn(async move { run(&store, &key, start, end, &shared).await });
        transfer.set_task(task.abort_handle());
        let id = all.next();
        all.transfers.insert(id, transfer);
        Some(id)
    })
}

/// The transfer of a number, if it was not ended.
pub fn transfer(id: i64) -> Option<Arc<Transfer>> {
    with_all(|all| all.transfers.get(&id).cloned())
}

/// Cancels a transfer that still runs, and forgets it.
pub fn end(id: i64) {
    if let Some(transfer) = with_all(|all| all.transfers.remove(&id)) {
        transfer.cancel();
    }
}

/// The numbers of (clients that are held, transfers, threads).
pub fn counts() -> (usize, usize, usize) {
    with_all(|all| {
        let held = all.clients.values().map(|client| client.holders).sum();
        (held, all.transfers.len(), THREADS.load(Ordering::Relaxed))
    })
}

/// Ends everything, since the class loader goes; false if a thread still runs this library's code.
pub fn shut_down() -> bool {
    let all = with_all(std::mem::take);
    for transfer in all.transfers.values() {
        transfer.cancel();
    }
    drop(all.clients);
    if let Some(runtime) = all.runtime {
        runtime.shutdown_timeout(SHUTDOWN);
    }
    THREADS.load(Ordering::Relaxed) == 0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_that_a_file_has_now_are_another_client() {
        let file = std::env::temp_dir().join(format!("tierlog-keys-{}", std::process::id()));
        // SAFETY: no other test reads this variable, and none sets one.
        unsafe { std::env::set_var("AWS_SHARED_CREDENTIALS_FILE", &file) };
        let mut found = Vec::new();
        for token in ["old", "old", "new"] {
            let text = format!("[default]\naws_access_key_id=a\naws_secret_access_key=b\naws_session_token={token}\n");
            std::fs::write(&file, text).unwrap();
            let region = BTreeMap::from([("region".to_owned(), "eu-central-1".to_owned())]);
            found.push(open_client("s3://bucket".to_owned(), region).unwrap());
        }
        std::fs::remove_file(&file).unwrap();
        found.iter().for_each(|each| close_client(*each));
        assert_eq!(found[0], found[1], "an executor that is never idle shares one");
        assert_ne!(found[1], found[2], "or it would go on with keys that have expired");
    }
}
