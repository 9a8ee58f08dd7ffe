//! What is wrong with a configuration, in the original's words.

use plimsoll_apimachinery::field::{ErrorType, FieldError, Path};
use plimsoll_apimachinery::selector::name_problem;
use serde_json::Value;

use super::args;
use super::types::{
    API_VERSION, Configuration, ExtenderConfig, LeaderElection, PluginSet, ProfileConfig,
};

/// One for each rule that a name breaks.
pub fn name_errors(name: &str, path: &Path) -> Vec<FieldError> {
    let problems = name_problem(name).unwrap_or_default();
    let problems = problems.split("; ").filter(|problem| !problem.is_empty());
    problems
        .map(|problem| FieldError::invalid(path, name, problem))
        .collect()
}

/// Plugins that there once were.
const REMOVED: [&str; 4] = [
    "AzureDiskLimits",
    "CinderLimits",
    "EBSLimits",
    "GCEPDLimits",
];

pub fn validate(config: &Configuration) -> Vec<FieldError> {
    let mut errors = Vec::new();
    if config.client_connection.burst < 0 {
        let field = Path::new("clientConnection").child("burst");
        let burst = config.client_connection.burst;
        errors.push(FieldError::invalid(&field, burst, "must be non-negative"));
    }
    election(&config.leader_election, &mut errors);
    if config.parallelism <= 0 {
        errors.push(FieldError::invalid(
            &Path::new("parallelism"),
            config.parallelism,
            "should be an integer value greater than zero",
        ));
    }
    profiles(&config.profiles, &mut errors);
    percentage(
        &Path::new("percentageOfNodesToScore"),
        config.percentage_of_nodes_to_score,
        &mut errors,
    );
    if config.pod_initial_backoff_seconds <= 0 {
        errors.push(FieldError::invalid(
            &Path::new("podInitialBackoffSeconds"),
            config.pod_initial_backoff_seconds,
            "must be greater than 0",
        ));
    }
    if config.pod_max_backoff_seconds < config.pod_initial_backoff_seconds {
        errors.push(FieldError::invalid(
            &Path::new("podMaxBackoffSeconds"),
            config.pod_max_backoff_seconds,
            "must be greater than or equal to PodInitialBackoffSeconds",
        ));
    }
    extenders(&config.extenders, &mut errors);
    errors
}

fn election(election: &LeaderElection, errors: &mut Vec<FieldError>) {
    if !election.leader_elect {
        return;
    }
    let path = Path::new("leaderElection");
    for (field, duration) in [
        ("leaseDuration", election.lease_duration),
        ("renewDeadline", election.renew_deadline),
        ("retryPeriod", election.retry_period),
    ] {
        if duration.0 <= 0 {
            let shown = duration.to_string();
            errors.push(FieldError::invalid(
                &path.child(field),
                shown,
                "must be greater than zero",
            ));
        }
    }
    if election.lease_duration < election.renew_deadline {
        // The original shows the other of the two, too.
        let shown = election.renew_deadline.to_string();
        let field = path.child("leaseDuration");
        errors.push(FieldError::invalid(
            &field,
            shown,
            "must be greater than `RenewDeadline`",
        ));
    }
    if election.resource_lock != "leases" {
        errors.push(FieldError::invalid(
            &path.child("resourceLock"),
            election.resource_lock.as_str(),
            "resourceLock value must be \"leases\"",
        ));
    }
}

fn percentage(path: &Path, value: i32, errors: &mut Vec<FieldError>) {
    if !(0..=100).contains(&value) {
        errors.push(FieldError::invalid(
            path,
            value,
            "not in valid range [0-100]",
        ));
    }
}

fn profiles(profiles: &[ProfileConfig], errors: &mut Vec<FieldError>) {
    let path = Path::new("profiles");
    if profiles.is_empty() {
        errors.push(FieldError::required(&path, ""));
        return;
    }
    for (index, profile) in profiles.iter().enumerate() {
        let here = path.index(index);
        profile_alone(profile, &here, errors);
        let before = &profiles[..index];
        if before
            .iter()
            .any(|other| other.scheduler_name == profile.scheduler_name)
        {
            // A path is shown as the struct without visible fields that it is.
            let field = here.child("schedulerName");
            errors.push(FieldError::with_shown(
                ErrorType::Duplicate,
                &field,
                "{}",
                "",
            ));
        }
    }
    common_sorting(profiles, &path, errors);
}

fn profile_alone(profile: &ProfileConfig, path: &Path, errors: &mut Vec<FieldError>) {
    if profile.scheduler_name.is_empty() {
        errors.push(FieldError::required(&path.child("schedulerName"), ""));
    }
    if let Some(value) = profile.percentage_of_nodes_to_score {
        percentage(&path.child("percentageOfNodesToScore"), value, errors);
    }
    let was = |name: &str| {
        let text = format!(
            "was invalid in version \"v1\" (KubeSchedulerConfiguration is version {API_VERSION:?})"
        );
        REMOVED.contains(&name).then_some(text)
    };
    // Not `multiPoint`: there it is a plugin that does not exist.
    let sets = profile.plugins.sets().into_iter();
    for (point, set) in sets.filter(|(point, _)| *point != "multiPoint") {
        for (index, plugin) in set.enabled.iter().enumerate() {
            if let Some(text) = was(&plugin.name) {
                let field = path
                    .child("plugins")
                    .child(point)
                    .child("enabled")
                    .index(index);
                errors.push(FieldError::invalid(&field, plugin.name.as_str(), text));
            }
        }
    }
    for (index, config) in profile.plugin_config.iter().enumerate() {
        let here = path.child("pluginConfig").index(index);
        let name = config.name.as_str();
        let before = &profile.plugin_config[..index];
        if before.iter().any(|other| other.name == name) {
            errors.push(FieldError::duplicate(&here, name));
        }
        if let Some(text) = was(name) {
            errors.push(FieldError::invalid(&here, name, text));
        }
        errors.extend(args::check(name, &config.args, &here.child("args")));
    }
}

/// There is one queue, so that all have to agree on its order.
fn common_sorting(profiles: &[ProfileConfig], path: &Path, errors: &mut Vec<FieldError>) {
    let first = &profiles[0].plugins.queue_sort;
    if first.enabled.len() > 1 {
        let field = path
            .index(0)
            .child("plugins")
            .child("queueSort")
            .child("Enabled");
        let number = first.enabled.len();
        errors.push(FieldError::invalid(
            &field,
            number,
            "only one queue sort plugin can be enabled",
        ));
    }
    for (index, profile) in profiles.iter().enumerate().skip(1) {
        let own = &profile.plugins.queue_sort;
        if own != first {
            let field = path.index(index).child("plugins").child("queueSort");
            errors.push(FieldError::with_shown(
                ErrorType::Invalid,
                &field,
                &shown_set(own),
                "must be the same for all profiles",
            ));
        }
    }
}

fn shown_set(set: &PluginSet) -> String {
    let list = |plugins: &[super::types::Enabled]| match plugins.is_empty() {
        true => "null".to_owned(),
        false => {
            let plugins: Vec<String> = plugins
                .iter()
                .map(|one| {
                    format!(
                        "{{\"Name\":{},\"Weight\":{}}}",
                        Value::from(one.name.as_str()),
                        one.weight
                    )
                })
                .collect();
            format!("[{}]", plugins.join(","))
        }
    };
    format!(
        "{{\"Enabled\":{},\"Disabled\":{}}}",
        list(&set.enabled),
        list(&set.disabled)
    )
}

fn extenders(extenders: &[ExtenderConfig], errors: &mut Vec<FieldError>) {
    let path = Path::new("extenders");
    let mut managed: Vec<&str> = Vec::new();
    for (index, extender) in extenders.iter().enumerate() {
        let here = path.index(index);
        if !extender.prioritize_verb.is_empty() && extender.weight <= 0 {
            errors.push(FieldError::invalid(
                &here.child("weight"),
                extender.weight,
                "must have a positive weight applied to it",
            ));
        }
        for (index, resource) in extender.managed_resources.iter().enumerate() {
            let field = here.child("managedResources").index(index).child("name");
            let name = resource.name.as_str();
            let broken = name_errors(name, &field);
            if !broken.is_empty() {
                errors.extend(broken);
            } else if !is_extended(name) {
                errors.push(FieldError::invalid(
                    &field,
                    name,
                    "is an invalid extended resource name",
                ));
            }
            if managed.contains(&name) {
                errors.push(FieldError::invalid(
                    &field,
                    name,
                    "duplicate extender managed resource name",
                ));
            }
            managed.push(name);
        }
    }
    let binders = extenders
        .iter()
        .filter(|one| !one.bind_verb.is_empty())
        .count();
    if binders > 1 {
        errors.push(FieldError::invalid(
            &path,
            format!("found {binders} extenders implementing bind"),
            "only one extender can implement bind",
        ));
    }
}

fn is_extended(name: &str) -> bool {
    let native = !name.contains('/') || name.contains("kubernetes.io/");
    !native && !name.starts_with("requests.")
}
