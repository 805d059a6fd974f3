//! How a URL and its options become a client: the way obstore makes its `S3Store`, `AzureStore` and `GCSStore`.

use std::collections::BTreeMap;
use std::str::FromStr;
use std::sync::Arc;
use std::time::Duration;

use object_store::aws::{AmazonS3Builder, AmazonS3ConfigKey};
use object_store::azure::{AzureConfigKey, MicrosoftAzureBuilder};
use object_store::gcp::{GoogleCloudStorageBuilder, GoogleConfigKey};
use object_store::path::Path;
use object_store::{BackoffConfig, Certificate, ClientConfigKey, ClientOptions, Error, ObjectStore, RetryConfig};

use crate::aws_profile;
use crate::failure::{Failure, short_text};
use crate::own_hosts::OwnHosts;

/// How long a request is tried again, and pauses between tries: `StoreOptions.retry_config` says why.
const RETRY_TIMEOUT: Duration = Duration::from_secs(90);
const FIRST_PAUSE: Duration = Duration::from_millis(100);
const LONGEST_PAUSE: Duration = Duration::from_secs(10);
const PAUSES_GROW: f64 = 3.0;

/// A store, and the folder in it below which keys are.
pub struct Opened {
    /// The store of one bucket or container.
    pub store: Arc<dyn ObjectStore>,
    /// `s3://bucket/folder`, as messages name it.
    pub name: String,
    /// The folder, without a slash at its end; "": the bucket itself.
    pub prefix: String,
}

impl Opened {
    /// The object's path in the bucket.
    pub fn path(&self, key: &str) -> Result<Path, Error> {
        let path = if self.prefix.is_empty() { key.to_owned() } else { format!("{}/{key}", self.prefix) };
        Ok(Path::parse(path)?)
    }
}

/// The options with those that the machine's files add: keys of `~/.aws`, as they are now.
pub fn with_shared(url: &str, mut options: BTreeMap<String, String>) -> BTreeMap<String, String> {
    if url.starts_with("s3://") {
        let environment = |name: &str| std::env::var(name).ok().filter(|value| !value.is_empty());
        for (name, value) in aws_profile::shared_options(&options, &environment) {
            options.insert(name.to_owned(), value);
        }
    }
    options
}

/// Opens the store of a URL; no request is made, and no file is read.
///
/// `url` is `scheme://bucket/folder` with s3, gs or az, and the folder as it is, not encoded. `options` are those of
/// `docs/plan-protocol.md`: of the store, of its HTTP client, `max_retries` and `retry_timeout`.
pub fn open(url: &str, mut options: BTreeMap<String, String>) -> Result<Opened, Failure> {
    // The provider of TLS for this copy of rustls; a second one is refused, which changes nothing.
    let _ = rustls::crypto::ring::default_provider().install_default();
    let bad = || Failure::config(format!("{url}: s3://, gs:// or az:// and a bucket expected"));
    let (scheme, rest) = url.split_once("://").ok_or_else(bad)?;
    let (bucket, folder) = rest.split_once('/').unwrap_or((rest, ""));
    if bucket.is_empty() {
        return Err(bad());
    }
    let prefix = folder.trim_matches('/').to_owned();
    let retry = take_retry(&mut options)?;
    let client = take_client(&mut options)?;
    let made: Result<Arc<dyn ObjectStore>, Error> = match scheme {
        "s3" => {
            let builder =
                AmazonS3Builder::from_env().with_http_connector(OwnHosts).with_client_options(client).with_retry(retry);
            let builder = configured(builder, &options, |b, k: AmazonS3ConfigKey, v| b.with_config(k, v))?;
            builder.with_bucket_name(bucket).build().map(|store| Arc::new(store) as _)
        }
        "gs" => {
            let builder = GoogleCloudStorageBuilder::from_env()
                .with_http_connector(OwnHosts)
                .with_client_options(client)
                .with_retry(retry);
            let builder = configured(builder, &options, |b, k: GoogleConfigKey, v| b.with_config(k, v))?;
            builder.with_bucket_name(bucket).build().map(|store| Arc::new(store) as _)
        }
        "az" => {
            let builder = MicrosoftAzureBuilder::from_env()
                .with_http_connector(OwnHosts)
                .with_client_options(client)
                .with_retry(retry);
            let builder = configured(builder, &options, |b, k: AzureConfigKey, v| b.with_config(k, v))?;
            builder.with_container_name(bucket).build().map(|store| Arc::new(store) as _)
        }
        _ => return Err(bad()),
    };
    let store = made.map_err(|error| Failure::config(format!("{scheme}://{bucket}: {}", short_text(&error))))?;
    Ok(Opened { store, name: url.trim_end_matches('/').to_owned(), prefix })
}

fn configured<B, K: FromStr<Err = Error>>(
    builder: B,
    options: &BTreeMap<String, String>,
    with: impl Fn(B, K, &str) -> B,
) -> Result<B, Failure> {
    options.iter().try_fold(builder, |builder, (name, value)| {
        let key = name.parse().map_err(|error| Failure::config(format!("store option: {}", short_text(&error))))?;
        Ok(with(builder, key, value))
    })
}

/// Takes the options of the HTTP client out.
fn take_client(options: &mut BTreeMap<String, String>) -> Result<ClientOptions, Failure> {
    let mut client = ClientOptions::new().with_timeout(Duration::from_secs(30));
    if let Some(text) = options.remove("root_certificate") {
        let found = Certificate::from_pem_bundle(text.as_bytes()).ok().filter(|found| !found.is_empty());
        for certificate in found.ok_or_else(|| Failure::config("store option root_certificate: PEM expected"))? {
            client = client.with_root_certificate(certificate);
        }
    }
    options.retain(|name, value| match ClientConfigKey::from_str(name) {
        Ok(key) => {
            client = std::mem::take(&mut client).with_config(key, value.clone());
            false
        }
        Err(_) => true,
    });
    Ok(client)
}

fn take_retry(options: &mut BTreeMap<String, String>) -> Result<RetryConfig, Failure> {
    let mut max_retries = usize::MAX;
    let mut retry_timeout = RETRY_TIMEOUT;
    if let Some(text) = options.remove("max_retries") {
        max_retries = text.parse().map_err(|_| Failure::config("store option max_retries: a number expected"))?;
    }
    if let Some(text) = options.remove("retry_timeout") {
        let milliseconds = text.strip_suffix("ms").and_then(|number| number.parse().ok());
        retry_timeout = Duration::from_millis(
            milliseconds.ok_or_else(|| Failure::config("store option retry_timeout: as 90000ms expected"))?,
        );
    }
    // The crate looks at the time before a pause, and tries once more behind it.
    let pause = LONGEST_PAUSE.min(retry_timeout / 9);
    let longest = pause.max(Duration::from_millis(1)); // of none its chance has nothing to choose from
    let backoff = BackoffConfig { init_backoff: FIRST_PAUSE.min(longest), max_backoff: longest, base: PAUSES_GROW };
    Ok(RetryConfig { backoff, max_retries, retry_timeout: retry_timeout - pause })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn opened(url: &str, options: &[(&str, &str)]) -> Result<Opened, Failure> {
        open(url, options.iter().map(|(name, value)| (name.to_string(), value.to_string())).collect())
    }

    const KEYS: [(&str, &str); 3] = [("access_key_id", "a"), ("secret_access_key", "b"), ("region", "us-east-1")];

    #[test]
    fn keys_lie_below_the_folder() {
        let store = opened("s3://bucket/a b/c", &KEYS).ok().unwrap();
        assert_eq!(store.path("d/e%20f").unwrap().as_ref(), "a b/c/d/e%20f");
        assert_eq!(opened("s3://bucket", &KEYS).ok().unwrap().path("d").unwrap().as_ref(), "d");
    }

    #[test]
    fn what_is_wrong_with_options_is_told() {
        let text = |options: &[(&str, &str)]| opened("s3://bucket", options).err().unwrap();
        assert_eq!(
            text(&[("no_such_key", "secret")]),
            Failure::config("store option: Configuration key: 'no_such_key' is not valid for store 'S3'.")
        );
        assert_eq!(text(&[("max_retries", "many")]).kind, "ConfigError");
        assert_eq!(text(&[("retry_timeout", "1h")]).kind, "ConfigError");
        assert_eq!(text(&[("root_certificate", "x")]).kind, "ConfigError");
        assert_eq!(text(&[("timeout", "soon")]).kind, "ConfigError");
        assert!(opened("ftp://bucket", &[]).is_err());
        assert!(opened("s3://", &[]).is_err());
    }

    #[test]
    fn tries_are_bounded_by_time() {
        let of = |options: &[(&str, &str)]| {
            let mut options = options.iter().map(|(name, value)| (name.to_string(), value.to_string())).collect();
            let retry = take_retry(&mut options).ok().unwrap();
            assert!(options.is_empty());
            (retry.max_retries, retry.retry_timeout + retry.backoff.max_backoff, retry.backoff.init_backoff)
        };
        assert_eq!(of(&[]), (usize::MAX, RETRY_TIMEOUT, FIRST_PAUSE));
        assert_eq!(
            of(&[("max_retries", "2"), ("retry_timeout", "900ms")]),
            (2, Duration::from_millis(900), FIRST_PAUSE)
        );
        assert_eq!(of(&[("retry_timeout", "0ms")]).1, Duration::from_millis(1));
    }

    #[test]
    fn every_kind_of_store_opens() {
        for url in ["gs://b/p", "az://c/p"] {
            let options = [("skip_signature", "true"), ("account_name", "x"), ("timeout", "5s")];
            let count = if url.starts_with("gs") { 1 } else { 3 };
            assert!(opened(url, &options[..count]).is_ok(), "{url}");
        }
    }
}
