//! From the part of a KubeSchedulerConfiguration that scenarios use to the core's profiles.

use anyhow::{Context, Result, bail};
use plimsoll_sched::Config;
use plimsoll_sched::framework::plugin::Plugin;
use plimsoll_sched::framework::profile::{DefaultConstraint, Defaulting, Profile, Strategy};
use plimsoll_sched::model::{Names, ResourceId};
use plimsoll_sched::queue::QueueConfig;
use serde_json::Value;

use super::scenario::Setup;

pub fn config(setup: &Setup, names: &mut Names) -> Result<Config> {
    let config: Value = serde_json::from_str(&setup.config)?;
    let mut profiles = Vec::new();
    for wire in config["profiles"].as_array().into_iter().flatten() {
        profiles.push(profile(wire, names)?);
    }
    if profiles.is_empty() {
        profiles.push(Profile::standard(names.intern("default-scheduler")));
    }
    if setup.gates.get("GangScheduling") == Some(&true) {
        profiles = profiles.into_iter().map(Profile::with_gangs).collect();
    }
    for profile in &mut profiles {
        profile.percentage_of_nodes_to_score = 100;
    }
    Ok(Config {
        profiles,
        queue: QueueConfig::default(),
        seed: 1,
    })
}

fn profile(wire: &Value, names: &mut Names) -> Result<Profile> {
    let name = wire["schedulerName"]
        .as_str()
        .unwrap_or("default-scheduler");
    let mut profile = Profile::standard(names.intern(name));
    for (point, set) in wire["plugins"].as_object().into_iter().flatten() {
        for plugin in set["disabled"].as_array().into_iter().flatten() {
            disable(
                &mut profile,
                point,
                plugin["name"].as_str().unwrap_or_default(),
            )?;
        }
        for plugin in set["enabled"].as_array().into_iter().flatten() {
            let found = named(plugin["name"].as_str().unwrap_or_default())?;
            if point != "score" {
                bail!("plugins can only be enabled at score here");
            }
            let weight = plugin["weight"].as_i64().unwrap_or(1);
            profile.score.retain(|(other, _)| *other != found);
            profile.score.push((found, weight));
        }
    }
    for arguments in wire["pluginConfig"].as_array().into_iter().flatten() {
        let name = arguments["name"].as_str().unwrap_or_default();
        configure(&mut profile, name, &arguments["args"], names)?;
    }
    Ok(profile)
}

fn named(name: &str) -> Result<Plugin> {
    Plugin::parse(name).with_context(|| format!("no plugin {name:?}"))
}

fn disable(profile: &mut Profile, point: &str, name: &str) -> Result<()> {
    if name == "*" {
        match point {
            "score" => profile.score.clear(),
            "postFilter" => profile.post_filter.clear(),
            _ => bail!("not everything can be disabled at {point} here"),
        }
        return Ok(());
    }
    let plugin = named(name)?;
    match point {
        "score" => profile.score.retain(|(other, _)| *other != plugin),
        "postFilter" => profile.post_filter.retain(|other| *other != plugin),
        "filter" => profile.filter.retain(|other| *other != plugin),
        "multiPoint" => *profile = profile.clone().without(plugin),
        _ => bail!("plugins cannot be disabled at {point} here"),
    }
    Ok(())
}

fn configure(profile: &mut Profile, plugin: &str, args: &Value, names: &mut Names) -> Result<()> {
    match plugin {
        "NodeResourcesFit" => fit(profile, args, names),
        "NodeResourcesBalancedAllocation" => {
            profile.args.balanced.resources = resources(&args["resources"], names)
                .into_iter()
                .map(|(resource, _)| resource)
                .collect();
        }
        "InterPodAffinity" => {
            let affinity = &mut profile.args.affinity;
            if let Some(weight) = args["hardPodAffinityWeight"].as_i64() {
                affinity.hard_pod_affinity_weight = weight;
            }
            affinity.ignore_preferred_terms_of_existing_pods =
                args["ignorePreferredTermsOfExistingPods"] == Value::Bool(true);
        }
        "PodTopologySpread" => {
            let constraints = args["defaultConstraints"].as_array();
            let list = constraints
                .into_iter()
                .flatten()
                .map(|wire| DefaultConstraint {
                    max_skew: wire["maxSkew"].as_i64().unwrap_or(1) as i32,
                    key: names.intern(wire["topologyKey"].as_str().unwrap_or_default()),
                    required: wire["whenUnsatisfiable"] == "DoNotSchedule",
                    min_domains: 1,
                    honor_affinity: true,
                    honor_taints: false,
                });
            if args["defaultingType"] == "List" {
                profile.args.spread.defaulting = Defaulting::List(list.collect());
            }
        }
        "NodeAffinity" => {
            // Read as a pod's would be.
            let pod = serde_json::json!({"metadata": {"name": "x"}, "spec": {"affinity":
                {"nodeAffinity": args["addedAffinity"]}}});
            let pod = plimsoll_sched::model::decode::pod(pod.to_string().as_bytes(), names)?;
            let added = &mut profile.args.node_affinity;
            let nodes = pod.spec.local.nodes.clone();
            added.required = nodes.terms.is_some().then_some(nodes);
            added.preferred = pod.spec.local.preferred_nodes.to_vec();
        }
        "DefaultPreemption" | "VolumeBinding" => {}
        other => bail!("{other} takes no arguments here"),
    }
    Ok(())
}

fn resources(list: &Value, names: &mut Names) -> Vec<(ResourceId, i64)> {
    list.as_array()
        .into_iter()
        .flatten()
        .map(|wire| {
            let name = wire["name"].as_str().unwrap_or_default();
            (names.resource(name), wire["weight"].as_i64().unwrap_or(1))
        })
        .collect()
}

fn fit(profile: &mut Profile, args: &Value, names: &mut Names) {
    let texts = |list: &Value| -> Vec<String> {
        let list = list.as_array().into_iter().flatten();
        list.filter_map(|name| name.as_str().map(str::to_owned))
            .collect()
    };
    let fit = &mut profile.args.fit;
    fit.ignored = texts(&args["ignoredResources"])
        .iter()
        .map(|name| names.resource(name))
        .collect();
    fit.ignored_groups = texts(&args["ignoredResourceGroups"])
        .into_iter()
        .map(Into::into)
        .collect();
    let strategy = &args["scoringStrategy"];
    let weighted = resources(&strategy["resources"], names);
    if !weighted.is_empty() {
        fit.resources = weighted;
    }
    fit.strategy = match strategy["type"].as_str() {
        Some("MostAllocated") => Strategy::MostAllocated,
        Some("RequestedToCapacityRatio") => {
            let shape = strategy["requestedToCapacityRatio"]["shape"].as_array();
            let number = |point: &Value, name: &str| point[name].as_i64().unwrap_or(0);
            let points = shape.into_iter().flatten();
            Strategy::RequestedToCapacityRatio(
                points
                    .map(|point| (number(point, "utilization"), 10 * number(point, "score")))
                    .collect(),
            )
        }
        _ => Strategy::LeastAllocated,
    };
}
