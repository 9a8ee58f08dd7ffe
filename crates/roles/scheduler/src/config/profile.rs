//! From a configuration to the core's profiles.

use plimsoll_apimachinery::field;
use plimsoll_sched::extender::Rule;
use plimsoll_sched::framework::profile as core;
use plimsoll_sched::framework::{Plugin, Profile};
use plimsoll_sched::model::decode;
use plimsoll_sched::model::{Names, ResourceId};
use plimsoll_sched::plugins::load_aware::LoadArgs;
use serde_json::Value;

use super::GoDuration;
use super::args::{self, typed};
use super::plugins::{Lineup, Point, line_up, merged};
use super::types::{Configuration, ProfileConfig};

/// What the configuration means; `Err`: in the words of the original.
pub fn profiles(config: &Configuration, names: &mut Names) -> Result<Vec<Profile>, String> {
    let mut profiles = Vec::new();
    for profile in &config.profiles {
        let made = one(config, profile, names).map_err(|problem| {
            format!(
                "initializing profiles: creating profile for scheduler name {}: {problem}",
                profile.scheduler_name
            )
        })?;
        profiles.push(made);
    }
    Ok(profiles)
}

fn one(
    config: &Configuration,
    profile: &ProfileConfig,
    names: &mut Names,
) -> Result<Profile, String> {
    let plugins = merged(&profile.plugins);
    let find = |plugin: &str| {
        let known = profile.plugin_config.iter().find(|one| one.name == plugin);
        known.map_or(Value::Null, |one| one.args.clone())
    };
    let fit: args::FitArgs = typed(&find("NodeResourcesFit")).map_err(|e| e.to_string())?;
    let wishes = plugins.sets();
    let is_wished = wishes
        .iter()
        .any(|(_, set)| set.enabled.iter().any(|one| one.name == "NodeResourcesFit"));
    let problems = args::check_fit(&fit);
    if is_wished && !problems.is_empty() {
        let problems = field::summary(&problems);
        return Err(format!(
            "initializing plugin \"NodeResourcesFit\": {problems}"
        ));
    }
    let lineup = line_up(&plugins, &profile.scheduler_name)?;
    let mut made = from_lineup(&lineup, profile, names);
    let percentage = profile
        .percentage_of_nodes_to_score
        .unwrap_or(config.percentage_of_nodes_to_score);
    made.percentage_of_nodes_to_score = u32::try_from(percentage).unwrap_or(0);
    made.args = core::Args {
        fit: fit_args(config, &fit, names),
        balanced: balanced_args(&find("NodeResourcesBalancedAllocation"), names),
        spread: spread_args(&find("PodTopologySpread"), names),
        affinity: affinity_args(&find("InterPodAffinity")),
        node_affinity: node_affinity_args(&find("NodeAffinity"), names)?,
        preemption: preemption_args(&find("DefaultPreemption")),
        volume_binding: volume_args(&find("VolumeBinding")),
        devices: device_args(&find("DynamicResources")),
        load: load_args(&find("LoadAwareScheduling")),
    };
    Ok(made)
}

fn from_lineup(lineup: &Lineup, profile: &ProfileConfig, names: &mut Names) -> Profile {
    let list = |point: Point| lineup.at(point).to_vec();
    Profile {
        name: names.intern(&profile.scheduler_name),
        percentage_of_nodes_to_score: 0,
        pre_enqueue: list(Point::PreEnqueue),
        pre_filter: list(Point::PreFilter),
        filter: list(Point::Filter),
        post_filter: list(Point::PostFilter),
        // VolumeBinding scores only with a feature that 1.36 has switched off.
        score: lineup
            .at(Point::Score)
            .iter()
            .filter(|plugin| **plugin != Plugin::VolumeBinding)
            .map(|plugin| (*plugin, lineup.weight(*plugin)))
            .collect(),
        reserve: list(Point::Reserve),
        permit: list(Point::Permit),
        pre_bind: list(Point::PreBind),
        args: core::Args::default(),
    }
}

fn fit_args(config: &Configuration, args: &args::FitArgs, names: &mut Names) -> core::FitArgs {
    let standard = core::FitArgs::default();
    // What extenders look after replaces what the profile names.
    let elsewhere: Vec<&str> = config
        .extenders
        .iter()
        .flat_map(|extender| &extender.managed_resources)
        .filter(|resource| resource.ignored_by_scheduler)
        .map(|resource| resource.name.as_str())
        .collect();
    let ignored: Vec<&str> = match elsewhere.is_empty() {
        true => args.ignored_resources.iter().map(String::as_str).collect(),
        false => elsewhere,
    };
    let strategy = args.scoring_strategy.clone().unwrap_or_default();
    let resources: Vec<(ResourceId, i64)> = strategy
        .resources
        .iter()
        .map(|resource| (resource_id(&resource.name, names), resource.weight))
        .collect();
    core::FitArgs {
        ignored: ignored.iter().map(|name| names.resource(name)).collect(),
        ignored_groups: args
            .ignored_resource_groups
            .iter()
            .map(|group| group.as_str().into())
            .collect(),
        strategy: match strategy.r#type.as_str() {
            "MostAllocated" => core::Strategy::MostAllocated,
            "RequestedToCapacityRatio" => {
                let shape = strategy.requested_to_capacity_ratio.unwrap_or_default();
                let points = shape
                    .shape
                    .iter()
                    .map(|point| (i64::from(point.utilization), i64::from(point.score) * 10));
                core::Strategy::RequestedToCapacityRatio(points.collect())
            }
            _ => core::Strategy::LeastAllocated,
        },
        resources: match resources.is_empty() {
            true => standard.resources,
            false => resources,
        },
    }
}

fn resource_id(name: &str, names: &mut Names) -> ResourceId {
    match name {
        "cpu" => ResourceId::CPU,
        "memory" => ResourceId::MEMORY,
        "ephemeral-storage" => ResourceId::EPHEMERAL_STORAGE,
        name => names.resource(name),
    }
}

fn balanced_args(args: &Value, names: &mut Names) -> core::BalancedArgs {
    let args: args::BalancedArgs = typed(args).unwrap_or_default();
    core::BalancedArgs {
        resources: args
            .resources
            .iter()
            .map(|resource| resource_id(&resource.name, names))
            .collect(),
    }
}

fn spread_args(args: &Value, names: &mut Names) -> core::SpreadArgs {
    let args: args::SpreadArgs = typed(args).unwrap_or_default();
    if args.defaulting_type != "List" {
        return core::SpreadArgs::default();
    }
    let constraints = args
        .default_constraints
        .iter()
        .map(|one| core::DefaultConstraint {
            max_skew: one.max_skew,
            key: names.intern(&one.topology_key),
            required: one.when_unsatisfiable == "DoNotSchedule",
            min_domains: one.min_domains.unwrap_or(1),
            honor_affinity: one.node_affinity_policy.as_deref() != Some("Ignore"),
            honor_taints: one.node_taints_policy.as_deref() == Some("Honor"),
        });
    core::SpreadArgs {
        defaulting: core::Defaulting::List(constraints.collect()),
    }
}

fn affinity_args(args: &Value) -> core::AffinityArgs {
    let args: args::AffinityArgs = typed(args).unwrap_or_default();
    core::AffinityArgs {
        hard_pod_affinity_weight: i64::from(args.hard_pod_affinity_weight),
        ignore_preferred_terms_of_existing_pods: args.ignore_preferred_terms_of_existing_pods,
    }
}

fn node_affinity_args(args: &Value, names: &mut Names) -> Result<core::NodeAffinityArgs, String> {
    let args: args::NodeAffinityArgs = typed(args).unwrap_or_default();
    let Some(added) = args.added_affinity else {
        return Ok(core::NodeAffinityArgs::default());
    };
    let (required, preferred) = decode::node_affinity(&added.to_string().into_bytes(), names)
        .map_err(|error| error.to_string())?;
    Ok(core::NodeAffinityArgs {
        required,
        preferred: preferred.into_vec(),
    })
}

fn preemption_args(args: &Value) -> core::PreemptionArgs {
    let args: args::PreemptionArgs = typed(args).unwrap_or_default();
    let number = |value: i32| usize::try_from(value).unwrap_or(0);
    core::PreemptionArgs {
        min_candidate_nodes_percentage: number(args.min_candidate_nodes_percentage),
        min_candidate_nodes_absolute: number(args.min_candidate_nodes_absolute),
    }
}

fn volume_args(args: &Value) -> core::VolumeBindingArgs {
    let args: args::VolumeBindingArgs = typed(args).unwrap_or_default();
    core::VolumeBindingArgs {
        bind_timeout_seconds: u64::try_from(args.bind_timeout_seconds).unwrap_or(0),
    }
}

fn device_args(args: &Value) -> core::DevicesArgs {
    let args: args::DynamicResourcesArgs = typed(args).unwrap_or_default();
    core::DevicesArgs {
        binding_timeout: args.binding_timeout.duration(),
        filter_timeout: args.filter_timeout.duration(),
    }
}

/// As Koordinator's plugin of that name has them.
fn load_args(args: &Value) -> LoadArgs {
    let mut load = LoadArgs::default();
    let pair = |value: &Value| [value["cpu"].as_i64(), value["memory"].as_i64()];
    let window = |value: &Value| {
        let window = value.as_str().and_then(|text| GoDuration::parse(text).ok());
        window.unwrap_or_default().max(GoDuration::default())
    };
    if args["usageThresholds"].is_object() {
        load.thresholds = pair(&args["usageThresholds"]);
    }
    if args["prodUsageThresholds"].is_object() {
        load.prod_thresholds = Some(pair(&args["prodUsageThresholds"]));
    }
    let aggregated = &args["aggregated"];
    if aggregated["usageThresholds"].is_object() {
        let kind = aggregated["usageAggregationType"].as_str().unwrap_or("p95");
        let window = window(&aggregated["usageAggregatedDuration"]);
        load.aggregated = Some((kind.into(), window, pair(&aggregated["usageThresholds"])));
    }
    for (own, field) in [
        (&mut load.weights, "resourceWeights"),
        (&mut load.scaling, "estimatedScalingFactors"),
    ] {
        for (own, given) in own.iter_mut().zip(pair(&args[field])) {
            *own = given.unwrap_or(*own);
        }
    }
    if let Some(weight) = args["dominantResourceWeight"].as_i64() {
        load.dominant_weight = weight;
    }
    if let Some(seconds) = args["nodeMetricExpirationSeconds"].as_i64() {
        load.expiration_seconds = seconds;
    }
    if let Some(filter) = args["filterExpiredNodeMetrics"].as_bool() {
        load.filter_expired = filter;
    }
    for (own, field) in [
        (&mut load.score_by_prod_usage, "scoreAccordingProdUsage"),
        (&mut load.prod_includes_system, "prodUsageIncludeSys"),
        (
            &mut load.schedule_when_expired,
            "enableScheduleWhenNodeMetricsExpired",
        ),
    ] {
        *own = args[field].as_bool().unwrap_or(*own);
    }
    if let Some(kind) = aggregated["scoreAggregationType"].as_str() {
        let window = window(&aggregated["scoreAggregatedDuration"]);
        load.score_aggregated = Some((kind.into(), window));
    }
    load
}

/// What extenders are there for, as far as the core needs to know.
pub fn rules(config: &Configuration, names: &mut Names) -> Vec<Rule> {
    config
        .extenders
        .iter()
        .map(|extender| Rule {
            filters: !extender.filter_verb.is_empty(),
            scores: !extender.prioritize_verb.is_empty(),
            preempts: !extender.preempt_verb.is_empty(),
            binds: !extender.bind_verb.is_empty() && !extender.ignorable,
            resources: extender
                .managed_resources
                .iter()
                .map(|resource| names.resource(&resource.name))
                .collect(),
        })
        .collect()
}
