//! HTTP that follows no redirect to another host: with it would go AWS's session token, and what that host answers
//! would be taken for the object.
//!
//! The crate's client follows up to ten and has no switch for it, but it takes a proxy, and hosts that are reached
//! without it. So each host that is asked gets a client of its own, for which all others lie behind a proxy that nothing
//! can listen at. Where a proxy is really used there is no room for this one. `tierlog.runtime.stores.reading.redirects` does the same.

use std::collections::HashMap;
use std::error::Error;
use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::{Mutex, PoisonError};

use object_store::client::{
    HttpClient, HttpConnector, HttpError, HttpErrorKind, HttpRequest, HttpResponse, HttpService, ReqwestConnector,
};
use object_store::{ClientConfigKey, ClientOptions};

/// Port 0: connecting to it is refused at once, and nothing can listen there.
const NOWHERE: &str = "127.0.0.1:0";
const PROXY_VARIABLES: [&str; 3] = ["http_proxy", "https_proxy", "all_proxy"];

/// The message for a caller, behind the name of the object.
pub const REFUSED: &str = "the store redirects to another host, which is not followed: name the endpoint that answers";

/// Makes clients that keep to the host that they are asked for.
#[derive(Debug)]
pub struct OwnHosts;

impl HttpConnector for OwnHosts {
    fn connect(&self, options: &ClientOptions) -> object_store::Result<HttpClient> {
        let whole = ReqwestConnector::default().connect(options)?; // what is wrong with the options is told now
        let is_set = |name: &str| std::env::var(name).is_ok_and(|value| !value.is_empty());
        let proxied = options.get_config_value(&ClientConfigKey::ProxyUrl).is_some()
            || PROXY_VARIABLES.iter().any(|name| is_set(name) || is_set(&name.to_uppercase()));
        if proxied {
            return Ok(whole);
        }
        Ok(HttpClient::new(ByHost { options: options.clone(), clients: Mutex::default() }))
    }
}

#[derive(Debug)]
struct ByHost {
    options: ClientOptions,
    clients: Mutex<HashMap<String, HttpClient>>,
}

impl ByHost {
    fn client(&self, host: &str) -> object_store::Result<HttpClient> {
        let mut clients = self.clients.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(found) = clients.get(host) {
            return Ok(found.clone());
        }
        let bare = host.trim_start_matches('[').trim_end_matches(']'); // an IPv6 address
        let options = self.options.clone().with_proxy_url(format!("http://{NOWHERE}")).with_proxy_excludes(bare);
        let made = ReqwestConnector::default().connect(&options)?;
        clients.insert(host.to_owned(), made.clone());
        Ok(made)
    }
}

impl HttpService for ByHost {
    fn call<'a, 'f>(
        &'a self,
        request: HttpRequest,
    ) -> Pin<Box<dyn Future<Output = Result<HttpResponse, HttpError>> + Send + 'f>>
    where
        'a: 'f,
        Self: 'f,
    {
        Box::pin(async move {
            let client = self.client(request.uri().host().unwrap_or_default());
            let client = client.map_err(|error| HttpError::new(HttpErrorKind::Unknown, error))?;
            client.execute(request).await.map_err(|error| match is_nowhere(&error) {
                true => HttpError::new(HttpErrorKind::Unknown, Refused), // not to be tried again
                false => error,
            })
        })
    }
}

fn is_nowhere(error: &HttpError) -> bool {
    let mut cause: Option<&(dyn Error + 'static)> = error.source();
    while let Some(found) = cause {
        if format!("{found:?}").contains(NOWHERE) {
            return true;
        }
        cause = found.source();
    }
    false
}

#[derive(Debug)]
struct Refused;

impl fmt::Display for Refused {
    fn fmt(&self, into: &mut fmt::Formatter<'_>) -> fmt::Result {
        into.write_str(REFUSED)
    }
}

impl Error for Refused {}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;
    use std::io::{BufRead, BufReader, Write};
    use std::net::TcpListener;
    use std::sync::Arc;
    use std::sync::atomic::{AtomicUsize, Ordering};

    use object_store::ObjectStoreExt;

    use crate::failure::{Failure, translate};
    use crate::opening::open;

    /// Answers each request with a redirect, or with "other" where there is no place; counts them.
    fn serve(place: Option<String>) -> (u16, Arc<AtomicUsize>) {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let (port, asked) = (listener.local_addr().unwrap().port(), Arc::new(AtomicUsize::new(0)));
        let count = Arc::clone(&asked);
        std::thread::spawn(move || {
            for connection in listener.incoming() {
                let mut connection = connection.unwrap();
                let lines = BufReader::new(connection.try_clone().unwrap()).lines();
                lines.map(Result::unwrap).take_while(|line| !line.is_empty()).for_each(drop);
                count.fetch_add(1, Ordering::SeqCst);
                let head = match &place {
                    Some(place) => format!("307 Temporary Redirect\r\nLocation: {place}\r\nContent-Length: 0"),
                    None => "200 OK\r\nContent-Length: 5".to_owned(),
                };
                let plain = "ETag: \"1\"\r\nLast-Modified: Sun, 22 Nov 2026 18:22:47 GMT\r\nConnection: close";
                let body = if place.is_some() { "" } else { "other" };
                write!(connection, "HTTP/1.1 {head}\r\n{plain}\r\n\r\n{body}").unwrap();
            }
        });
        (port, asked)
    }

    fn fetched(port: u16) -> Result<Vec<u8>, Failure> {
        let options = [
            ("endpoint", format!("http://127.0.0.1:{port}")),
            ("access_key_id", "a".to_owned()),
            ("secret_access_key", "s".to_owned()),
            ("allow_http", "true".to_owned()),
        ];
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
        runtime.block_on(async {
            let options: BTreeMap<_, _> = options.map(|(name, value)| (name.to_owned(), value)).into();
            let store = open("s3://b", options).ok().unwrap();
            let answer = store.store.get(&store.path("k").unwrap()).await;
            let answer = answer.map_err(|error| translate(&error, "s3://b/k"))?;
            Ok(answer.bytes().await.unwrap().to_vec())
        })
    }

    #[test]
    fn another_host_is_not_asked() {
        let (other, others) = serve(None);
        let (first, firsts) = serve(Some(format!("http://localhost:{other}/x")));
        let failure = fetched(first).unwrap_err();
        assert_eq!((failure.kind, failure.text), ("StoreError", format!("s3://b/k: {}", super::REFUSED)));
        assert_eq!((firsts.load(Ordering::SeqCst), others.load(Ordering::SeqCst)), (1, 0));
    }

    #[test]
    fn another_port_of_the_host_is() {
        let (other, others) = serve(None);
        let (first, _) = serve(Some(format!("http://127.0.0.1:{other}/x")));
        assert_eq!(fetched(first).unwrap(), b"other");
        assert_eq!(others.load(Ordering::SeqCst), 1);
    }
}
