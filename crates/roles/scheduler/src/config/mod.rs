//! KubeSchedulerConfiguration: read strictly, completed, checked, and turned into what the core is made of.

mod args;
mod plugins;
mod profile;
mod schema;
mod types;
mod validate;

use plimsoll_apimachinery::field;
use plimsoll_golang::yaml;
use plimsoll_sched::extender::Rule;
use plimsoll_sched::framework::Profile;
use plimsoll_sched::model::Names;
use serde_json::{Value, json};

pub use plimsoll_golang::GoDuration;
pub use types::{
    ClientConnection, Configuration, ExtenderConfig, ExtenderTls, LeaderElection, ManagedResource,
    ProfileConfig,
};

use args::Unreadable;
use types::{API_VERSION, CONFIGURATION, KIND};

/// A configuration that cannot be used, in the original's words.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct ConfigError(pub String);

fn no_kind(kind: &str, version: &str) -> String {
    format!(
        "no kind {kind:?} is registered for version {version:?} in scheme \"pkg/runtime/scheme.go:111\""
    )
}

/// As good as left out.
fn without_nulls(value: Value) -> Value {
    match value {
        Value::Object(map) => map
            .into_iter()
            .filter(|(_, value)| !value.is_null())
            .map(|(key, value)| (key, without_nulls(value)))
            .collect(),
        Value::Array(list) => list.into_iter().map(without_nulls).collect(),
        other => other,
    }
}

/// Reads a file's text, completes and checks it.
pub fn parse(text: &str) -> Result<Configuration, ConfigError> {
    let value: Value = match text.trim() {
        "" => Value::Null,
        _ => serde_saphyr::from_str(text).map_err(|error| ConfigError(format!("yaml: {error}")))?,
    };
    let kind = value["kind"].as_str().unwrap_or_default();
    let version = value["apiVersion"].as_str().unwrap_or_default();
    if kind.is_empty() {
        return Err(ConfigError(format!("Object 'Kind' is missing in '{text}'")));
    }
    if version.is_empty() {
        return Err(ConfigError(format!(
            "Object 'apiVersion' is missing in '{text}'"
        )));
    }
    if version != API_VERSION || kind != KIND {
        let is_args = |kind: &str| {
            let plugin = kind.strip_suffix("Args");
            plugin.is_some_and(|name| args::WITH_ARGS.contains(&name))
        };
        return Err(ConfigError(match version == API_VERSION && is_args(kind) {
            true => format!("couldn't decode as {KIND}, got {API_VERSION}, Kind={kind}: "),
            false => no_kind(kind, version),
        }));
    }
    let mut config = decode(&value)?;
    config.set_defaults();
    // A name that is given but empty is not filled in.
    if let (Some([given]), [only]) = (
        value["profiles"].as_array().map(Vec::as_slice),
        config.profiles.as_mut_slice(),
    ) && given["schedulerName"] == ""
    {
        only.scheduler_name.clear();
    }
    config.check()?;
    Ok(config)
}

fn decode(value: &Value) -> Result<Configuration, ConfigError> {
    let unknown = CONFIGURATION.check(value).map_err(ConfigError)?;
    let mut strict: Vec<String> = unknown
        .iter()
        .map(|field| format!("unknown field {field:?}"))
        .collect();
    let mut config: Configuration = serde_json::from_value(without_nulls(value.clone()))
        .map_err(|error| ConfigError(format!("json: {error}")))?;
    for (number, profile) in config.profiles.iter_mut().enumerate() {
        for (index, plugin) in profile.plugin_config.iter_mut().enumerate() {
            let place = format!("decoding .profiles[{number}].pluginConfig[{index}]");
            match args::read(&plugin.name, &plugin.args) {
                Ok(args) => plugin.args = args,
                Err(Unreadable::Plain(problem)) => {
                    return Err(ConfigError(format!("{place}: {problem}")));
                }
                Err(Unreadable::Strict(problem)) => {
                    strict.push(format!("{place}: strict decoding error: {problem}"));
                }
            }
        }
    }
    match strict.is_empty() {
        true => Ok(config),
        false => Err(ConfigError(format!(
            "strict decoding error: {}",
            strict.join(", ")
        ))),
    }
}

impl Configuration {
    /// Everything that can be found wrong without building a scheduler.
    pub fn check(&mut self) -> Result<(), ConfigError> {
        for profile in &mut self.profiles {
            for name in args::WITH_ARGS {
                if profile.plugin_config.iter().any(|one| one.name == name) {
                    continue;
                }
                let filled = args::read(name, &Value::Null);
                let (Ok(args), name) = (filled, name.to_owned()) else {
                    continue;
                };
                profile
                    .plugin_config
                    .push(types::PluginConfig { args, name });
            }
        }
        let problems = validate::validate(self);
        match problems.is_empty() {
            true => Ok(()),
            false => Err(ConfigError(field::summary(&problems))),
        }
    }

    /// The core's profiles and rules.
    pub fn build(&self, names: &mut Names) -> Result<(Vec<Profile>, Vec<Rule>), ConfigError> {
        let profiles = profile::profiles(self, names).map_err(ConfigError)?;
        Ok((profiles, profile::rules(self, names)))
    }

    /// With everything that holds, as a file that says the same.
    pub fn completed(&self) -> Value {
        let mut written = json!(self);
        let profiles = written["profiles"].as_array_mut();
        for (written, profile) in profiles.into_iter().flatten().zip(&self.profiles) {
            let merged = plugins::merged(&profile.plugins);
            let runs = |name: &str| {
                let mut sets = merged.sets().into_iter();
                sets.any(|(_, set)| set.enabled.iter().any(|plugin| plugin.name == name))
            };
            // Arguments that are used, by name.
            let mut args: Vec<_> = profile.plugin_config.iter().collect();
            args.retain(|one| runs(&one.name));
            args.sort_by(|one, other| one.name.cmp(&other.name));
            written["pluginConfig"] = json!(args);
            written["plugins"] = json!(merged);
        }
        written["apiVersion"] = API_VERSION.into();
        written["kind"] = KIND.into();
        written
    }

    pub fn to_yaml(&self) -> String {
        yaml::to_string(&self.completed())
    }
}

#[cfg(test)]
mod tests;
