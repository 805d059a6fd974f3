//! Static keys and the region of `~/.aws`: a part of the usual chain that `object_store` leaves out, as
//! `tierlog.runtime.stores.settings.options` adds it for Python. Profiles that assume a role or sign on are not followed.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

const FILE_BYTES_MAX: u64 = 1 << 20;
/// Variables with which the environment names other credentials.
const OTHER_CREDENTIALS: [&str; 4] = [
    "AWS_ACCESS_KEY_ID",
    "AWS_WEB_IDENTITY_TOKEN_FILE",
    "AWS_CONTAINER_CREDENTIALS_RELATIVE_URI",
    "AWS_CONTAINER_CREDENTIALS_FULL_URI",
];

/// A variable of the environment; an empty one counts as unset.
pub type Environment<'a> = &'a dyn Fn(&str) -> Option<String>;

/// The options to add (`access_key_id` …); none if the user or the environment gives credentials.
pub fn shared_options(options: &BTreeMap<String, String>, environment: Environment) -> Vec<(&'static str, String)> {
    let given = ["access_key_id", "aws_access_key_id", "skip_signature", "aws_skip_signature"];
    if given.iter().any(|name| options.contains_key(*name))
        || OTHER_CREDENTIALS.iter().any(|name| environment(name).is_some())
    {
        return Vec::new();
    }
    let profile = environment("AWS_PROFILE").unwrap_or_else(|| "default".to_owned());
    let keys = read_section(&place("AWS_SHARED_CREDENTIALS_FILE", ".aws/credentials", environment), &profile);
    let (Some(id), Some(secret)) = (keys.get("aws_access_key_id"), keys.get("aws_secret_access_key")) else {
        return Vec::new();
    };
    let mut found = vec![("access_key_id", id.clone()), ("secret_access_key", secret.clone())];
    if let Some(token) = keys.get("aws_session_token") {
        found.push(("session_token", token.clone()));
    }
    let has_region = ["region", "aws_region"].iter().any(|name| options.contains_key(*name))
        || ["AWS_REGION", "AWS_DEFAULT_REGION"].iter().any(|name| environment(name).is_some());
    if !has_region {
        let section = if profile == "default" { profile } else { format!("profile {profile}") };
        let config = read_section(&place("AWS_CONFIG_FILE", ".aws/config", environment), &section);
        if let Some(region) = config.get("region") {
            found.push(("region", region.clone()));
        }
    }
    found
}

fn place(variable: &str, usual: &str, environment: Environment) -> PathBuf {
    match environment(variable) {
        Some(path) => PathBuf::from(path),
        None => PathBuf::from(environment("HOME").unwrap_or_default()).join(usual),
    }
}

/// The pairs of one section; empty if there is no such file or section.
fn read_section(path: &Path, section: &str) -> BTreeMap<String, String> {
    let mut found = BTreeMap::new();
    let small = std::fs::metadata(path).is_ok_and(|about| about.is_file() && about.len() <= FILE_BYTES_MAX);
    let Ok(text) = (if small { std::fs::read_to_string(path) } else { return found }) else { return found };
    let mut inside = false;
    for line in text.lines() {
        let line = line.trim();
        if line.starts_with(['#', ';']) || line.is_empty() {
            continue;
        }
        if let Some(name) = line.strip_prefix('[').and_then(|rest| rest.strip_suffix(']')) {
            inside = name.trim() == section;
        } else if let (true, Some((name, value))) = (inside, line.split_once('=')) {
            found.insert(name.trim().to_lowercase(), value.trim().to_owned());
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    fn options(profile: Option<&str>, given: &[(&str, &str)]) -> Vec<(&'static str, String)> {
        let folder = std::env::temp_dir().join(format!("tierlog-aws-{}-{}", std::process::id(), profile.unwrap_or("")));
        std::fs::create_dir_all(&folder).unwrap();
        let credentials = "# keys\n[default]\naws_access_key_id = a\naws_secret_access_key=b\n\
                           [other]\naws_access_key_id=c\naws_secret_access_key=d=\naws_session_token=t\n";
        std::fs::write(folder.join("credentials"), credentials).unwrap();
        std::fs::write(folder.join("config"), "[profile other]\nregion = eu-north-1\n").unwrap();
        let environment = |name: &str| match name {
            "AWS_SHARED_CREDENTIALS_FILE" => Some(folder.join("credentials").display().to_string()),
            "AWS_CONFIG_FILE" => Some(folder.join("config").display().to_string()),
            "AWS_PROFILE" => profile.map(str::to_owned),
            _ => None,
        };
        let given = given.iter().map(|(name, value)| (name.to_string(), value.to_string())).collect();
        let found = shared_options(&given, &environment);
        std::fs::remove_dir_all(&folder).unwrap();
        found
    }

    #[test]
    fn the_default_profile_gives_its_keys() {
        assert_eq!(options(None, &[]), [("access_key_id", "a".into()), ("secret_access_key", "b".into())]);
    }

    #[test]
    fn a_named_profile_gives_its_region_too() {
        let found = options(Some("other"), &[]);
        assert_eq!(found[1], ("secret_access_key", "d=".into()));
        assert_eq!(found[2], ("session_token", "t".into()));
        assert_eq!(found[3], ("region", "eu-north-1".into()));
    }

    #[test]
    fn what_the_user_gives_wins() {
        assert!(options(Some("x"), &[("access_key_id", "mine")]).is_empty());
        assert!(options(Some("y"), &[("skip_signature", "true")]).is_empty());
    }
}
