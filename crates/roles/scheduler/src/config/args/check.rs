//! What is wrong with arguments, in the original's words.

use plimsoll_apimachinery::field::{FieldError, Path};
use plimsoll_apimachinery::selector::name_problem;
use serde_json::{Value, json};

use super::{
    AffinityArgs, BalancedArgs, DynamicResourcesArgs, FitArgs, NodeAffinityArgs, Point,
    PreemptionArgs, SpreadArgs, VolumeBindingArgs, typed,
};
use crate::config::GoDuration;
use crate::config::validate::name_errors;

const PERCENT: &str = "not in valid range [0, 100]";

/// Those that are checked with the configuration. [`check_fit`] is called when the plugin is made.
pub fn check(plugin: &str, args: &Value, path: &Path) -> Vec<FieldError> {
    let found = match plugin {
        "DefaultPreemption" => typed(args).map(|args| preemption(&args, path)),
        "DynamicResources" => typed(args).map(|args| dynamic_resources(&args, path)),
        "InterPodAffinity" => typed(args).map(|args| affinity(&args, path)),
        "NodeAffinity" => typed(args).map(|args| node_affinity(&args, path)),
        "NodeResourcesBalancedAllocation" => typed(args).map(|args| balanced(&args, path)),
        "PodTopologySpread" => typed(args).map(|args| spread(&args, path)),
        "VolumeBinding" => typed(args).map(|read| volume_binding(&read, args, path)),
        _ => Ok(Vec::new()),
    };
    found.unwrap_or_default()
}

fn preemption(args: &PreemptionArgs, path: &Path) -> Vec<FieldError> {
    let percentage = path.child("minCandidateNodesPercentage");
    let absolute = path.child("minCandidateNodesAbsolute");
    let (share, number) = (
        args.min_candidate_nodes_percentage,
        args.min_candidate_nodes_absolute,
    );
    let mut errors = Vec::new();
    if !(0..=100).contains(&share) {
        errors.push(FieldError::invalid(&percentage, share, PERCENT));
    }
    if number < 0 {
        errors.push(FieldError::invalid(
            &absolute,
            number,
            "not in valid range [0, inf)",
        ));
    }
    if share == 0 && number == 0 {
        let zero = |other: &str| format!("cannot be zero at the same time as {other}");
        errors.push(FieldError::invalid(
            &percentage,
            0,
            zero("minCandidateNodesAbsolute"),
        ));
        errors.push(FieldError::invalid(
            &absolute,
            0,
            zero("minCandidateNodesPercentage"),
        ));
    }
    errors
}

fn dynamic_resources(args: &DynamicResourcesArgs, path: &Path) -> Vec<FieldError> {
    let mut errors = Vec::new();
    if args.filter_timeout.0 < 0 {
        let field = path.child("filterTimeout");
        let shown = args.filter_timeout.to_string();
        errors.push(FieldError::invalid(
            &field,
            shown,
            "must be zero or positive",
        ));
    }
    if args.binding_timeout < GoDuration::from_secs(1) {
        let field = path.child("bindingTimeout");
        let shown = args.binding_timeout.to_string();
        errors.push(FieldError::invalid(
            &field,
            shown,
            "must be at least 1 second",
        ));
    }
    errors
}

fn affinity(args: &AffinityArgs, path: &Path) -> Vec<FieldError> {
    let weight = args.hard_pod_affinity_weight;
    match (0..=100).contains(&weight) {
        true => Vec::new(),
        false => {
            let field = path.child("hardPodAffinityWeight");
            vec![FieldError::invalid(&field, weight, PERCENT)]
        }
    }
}

fn balanced(args: &BalancedArgs, path: &Path) -> Vec<FieldError> {
    let path = path.child("resources");
    let mut errors = Vec::new();
    for (index, resource) in args.resources.iter().enumerate() {
        let here = path.index(index);
        let before = &args.resources[..index];
        if before.iter().any(|other| other.name == resource.name) {
            errors.push(FieldError::duplicate(
                &here.child("name"),
                resource.name.as_str(),
            ));
        }
        if resource.weight != 1 {
            errors.push(FieldError::invalid(
                &here.child("weight"),
                resource.weight,
                "must be 1",
            ));
        }
    }
    errors
}

fn spread(args: &SpreadArgs, path: &Path) -> Vec<FieldError> {
    let mut errors = Vec::new();
    let kind = path.child("defaultingType");
    match args.defaulting_type.as_str() {
        "System" if !args.default_constraints.is_empty() => errors.push(FieldError::invalid(
            &kind,
            "System",
            "when .defaultConstraints are not empty",
        )),
        "System" | "List" => {}
        other => errors.push(FieldError::not_supported(&kind, other, &["System", "List"])),
    }
    let path = path.child("defaultConstraints");
    for (index, constraint) in args.default_constraints.iter().enumerate() {
        let here = path.index(index);
        if constraint.max_skew <= 0 {
            let field = here.child("maxSkew");
            errors.push(FieldError::invalid(
                &field,
                constraint.max_skew,
                "not in valid range (0, inf)",
            ));
        }
        let key = here.child("topologyKey");
        if constraint.topology_key.is_empty() {
            errors.push(FieldError::required(&key, "can not be empty"));
        } else if let Some(problem) = name_problem(&constraint.topology_key) {
            errors.push(FieldError::invalid(
                &key,
                constraint.topology_key.as_str(),
                problem,
            ));
        }
        let action = here.child("whenUnsatisfiable");
        match constraint.when_unsatisfiable.as_str() {
            "" => errors.push(FieldError::required(&action, "can not be empty")),
            "DoNotSchedule" | "ScheduleAnyway" => {}
            other => errors.push(FieldError::not_supported(
                &action,
                other,
                &["DoNotSchedule", "ScheduleAnyway"],
            )),
        }
        if constraint.label_selector.is_some() {
            errors.push(FieldError::forbidden(
                &here.child("labelSelector"),
                "constraint must not define a selector, as they deduced for each pod",
            ));
        }
        let same = |other: &super::Constraint| {
            other.topology_key == constraint.topology_key
                && other.when_unsatisfiable == constraint.when_unsatisfiable
        };
        if args.default_constraints[..index].iter().any(same) {
            let shown = format!(
                "{{{}, {}}}",
                constraint.topology_key, constraint.when_unsatisfiable
            );
            errors.push(FieldError::duplicate(&here, shown));
        }
    }
    errors
}

fn volume_binding(args: &VolumeBindingArgs, given: &Value, path: &Path) -> Vec<FieldError> {
    let mut errors = Vec::new();
    if args.bind_timeout_seconds < 0 {
        errors.push(FieldError::invalid(
            &path.child("bindTimeoutSeconds"),
            args.bind_timeout_seconds,
            "invalid BindTimeoutSeconds, should not be a negative value",
        ));
    }
    let points: Option<Vec<Point>> = typed(&given["shape"]).ok();
    if let Some(points) = points {
        // As Go shows structs without names for their fields.
        let shown: Vec<String> = points
            .iter()
            .map(|point| {
                format!(
                    "{{\"Utilization\":{},\"Score\":{}}}",
                    point.utilization, point.score
                )
            })
            .collect();
        errors.push(FieldError::with_shown(
            plimsoll_apimachinery::field::ErrorType::Invalid,
            &path.child("shape"),
            &format!("[{}]", shown.join(",")),
            "unexpected field `shape`, remove it or turn on the feature gate StorageCapacityScoring",
        ));
    }
    errors
}

fn node_affinity(args: &NodeAffinityArgs, path: &Path) -> Vec<FieldError> {
    let Some(added) = &args.added_affinity else {
        return Vec::new();
    };
    let path = path.child("addedAffinity");
    let mut errors = Vec::new();
    let required = "requiredDuringSchedulingIgnoredDuringExecution";
    let terms = added[required]["nodeSelectorTerms"].as_array();
    for (index, term) in terms.into_iter().flatten().enumerate() {
        let here = path.child(required).child("nodeSelectorTerms").index(index);
        node_term(term, &here, &mut errors);
    }
    let preferred = "preferredDuringSchedulingIgnoredDuringExecution";
    for (index, term) in added[preferred]
        .as_array()
        .into_iter()
        .flatten()
        .enumerate()
    {
        if term["weight"].as_i64().unwrap_or(0) == 0 {
            continue;
        }
        let here = path.child(preferred).index(index);
        node_term(&term["preference"], &here, &mut errors);
    }
    errors
}

fn node_term(term: &Value, path: &Path, errors: &mut Vec<FieldError>) {
    let list = |key: &str| term[key].as_array().cloned().unwrap_or_default();
    for (index, one) in list("matchExpressions").iter().enumerate() {
        requirement(one, &path.child("matchExpressions").index(index), errors);
    }
    for (index, one) in list("matchFields").iter().enumerate() {
        let here = path.child("matchFields").index(index);
        if one["values"].as_array().map_or(0, Vec::len) != 1 {
            let field = here.child("values");
            errors.push(FieldError::invalid(
                &field,
                one["values"].clone(),
                "must have one element",
            ));
        }
    }
}

fn requirement(one: &Value, path: &Path, errors: &mut Vec<FieldError>) {
    let operator = one["operator"].as_str().unwrap_or_default();
    let values: Vec<&str> = one["values"]
        .as_array()
        .into_iter()
        .flatten()
        .filter_map(Value::as_str)
        .collect();
    let field = path.child("values");
    let shown = match values.is_empty() {
        true => Value::Null,
        false => json!(values),
    };
    match operator {
        "In" | "NotIn" if values.is_empty() => errors.push(FieldError::invalid(
            &field,
            shown,
            "for 'in', 'notin' operators, values set can't be empty",
        )),
        "Exists" | "DoesNotExist" if !values.is_empty() => errors.push(FieldError::invalid(
            &field,
            shown,
            "values set must be empty for exists and does not exist",
        )),
        "Gt" | "Lt" if values.len() != 1 => errors.push(FieldError::invalid(
            &field,
            shown,
            "for 'Gt', 'Lt' operators, exactly one value is required",
        )),
        "Gt" | "Lt" if values[0].parse::<i64>().is_err() => errors.push(FieldError::invalid(
            &field.index(0),
            values[0],
            "for 'Gt', 'Lt' operators, the value must be an integer",
        )),
        "In" | "NotIn" | "Exists" | "DoesNotExist" | "Gt" | "Lt" => {}
        other => errors.push(FieldError::not_supported(
            &path.child("operator"),
            other,
            &["In", "NotIn", "Exists", "DoesNotExist", "Gt", "Lt"],
        )),
    }
    let key = one["key"].as_str().unwrap_or_default();
    if let Some(problem) = name_problem(key) {
        errors.push(FieldError::invalid(&path.child("key"), key, problem));
    }
}

/// NodeResourcesFit's are looked at when the plugin is made, so that paths begin with them.
pub fn check_fit(args: &FitArgs) -> Vec<FieldError> {
    let mut errors = Vec::new();
    let path = Path::new("ignoredResources");
    for (index, name) in args.ignored_resources.iter().enumerate() {
        errors.extend(name_errors(name, &path.index(index)));
    }
    let path = Path::new("ignoredResourceGroups");
    for (index, name) in args.ignored_resource_groups.iter().enumerate() {
        let here = path.index(index);
        if name.contains('/') {
            errors.push(FieldError::invalid(
                &here,
                name.as_str(),
                "resource group name can't contain '/'",
            ));
        }
        errors.extend(name_errors(name, &here));
    }
    let path = Path::new("scoringStrategy");
    let Some(strategy) = &args.scoring_strategy else {
        errors.push(FieldError::required(
            &path,
            "ScoringStrategy field is required",
        ));
        return errors;
    };
    const TYPES: [&str; 3] = [
        "LeastAllocated",
        "MostAllocated",
        "RequestedToCapacityRatio",
    ];
    let ratio = path.child("requestedToCapacityRatio");
    match (
        strategy.r#type.as_str(),
        &strategy.requested_to_capacity_ratio,
    ) {
        ("RequestedToCapacityRatio", None) => errors.push(FieldError::required(
            &ratio,
            "must be specified when type is RequestedToCapacityRatio",
        )),
        ("RequestedToCapacityRatio", Some(given)) => {
            shape(&given.shape, &ratio.child("shape"), &mut errors)
        }
        ("LeastAllocated" | "MostAllocated", Some(_)) => errors.push(FieldError::forbidden(
            &ratio,
            "must be nil when type is not RequestedToCapacityRatio",
        )),
        ("LeastAllocated" | "MostAllocated", None) => {}
        (other, _) => errors.push(FieldError::not_supported(
            &path.child("type"),
            other,
            &TYPES,
        )),
    }
    for (index, resource) in strategy.resources.iter().enumerate() {
        if !(1..=100).contains(&resource.weight) {
            let field = path.child("resources").index(index).child("weight");
            let problem = format!(
                "resource weight of {} not in valid range (0, 100]",
                resource.name
            );
            errors.push(FieldError::invalid(&field, resource.weight, problem));
        }
    }
    errors
}

fn shape(points: &[Point], path: &Path, errors: &mut Vec<FieldError>) {
    if points.is_empty() {
        errors.push(FieldError::required(
            path,
            "at least one point must be specified",
        ));
        return;
    }
    let unsorted = points
        .windows(2)
        .position(|pair| pair[0].utilization >= pair[1].utilization);
    if let Some(before) = unsorted {
        let field = path.index(before + 1).child("utilization");
        let shown = points[before + 1].utilization;
        errors.push(FieldError::invalid(
            &field,
            shown,
            "values must be sorted in increasing order",
        ));
    }
    for (index, point) in points.iter().enumerate() {
        let here = path.index(index);
        if !(0..=100).contains(&point.utilization) {
            errors.push(FieldError::invalid(
                &here.child("utilization"),
                point.utilization,
                PERCENT,
            ));
        }
        if !(0..=10).contains(&point.score) {
            errors.push(FieldError::invalid(
                &here.child("score"),
                point.score,
                "not in valid range [0, 10]",
            ));
        }
    }
}
