//! Kinds of resource.k8s.io: classes of devices, claims to them, and the slices that drivers publish.

use std::collections::{BTreeMap, BTreeSet};

use plimsoll_expressions::devices;
use serde_json::Value;

use super::at::{At, Errors, IMMUTABLE, field, same, text};
use super::claims;
use super::names::{self, NameRule};
use super::pod::scheduling;
use super::rules::Rules;
use super::storage::volumes::csi_driver_name;
use super::{Lookup, diff, metadata};
use crate::expressions;
use crate::field::FieldError;
use crate::status::{StatusError, Subject};
use plimsoll_golang::strconv::quote;

pub(super) static KINDS: &[&Rules] = &[
    &DEVICE_CLASS,
    &RESOURCE_CLAIM,
    &RESOURCE_CLAIM_TEMPLATE,
    &RESOURCE_SLICE,
];

const GROUP: &str = "resource.k8s.io";
const MAX_ID: usize = 32;
const MAX_POOL_NAME: usize = 253;
const EFFECTS: &[&str] = &["NoExecute", "NoSchedule", "None"];

static DEVICE_CLASS: Rules = Rules {
    kind: "DeviceClass",
    names: NameRule::SubdomainInTheEnd,
    generation: true,
    validate: |class, errors| {
        let spec = class.get("spec");
        selectors(&spec.get("selectors"), errors);
        for config in spec.get("config").items() {
            configuration(&config, errors);
        }
        let extended = spec.get("extendedResourceName");
        if extended.is_set() && !is_extended_resource(extended.text()) {
            errors.invalid(
                &extended,
                extended.text(),
                "must be a valid extended resource name",
            );
        }
    },
    ..Rules::cluster(GROUP)
};

static RESOURCE_CLAIM: Rules = Rules {
    kind: "ResourceClaim",
    status: true,
    validate: |claim, errors| claimed(&claim.dig(&["spec", "devices"]), errors),
    validate_update: Some(|new, old, errors| immutable_spec(new, old, "ResourceClaimSpec", errors)),
    approve: |claim, old, world| match old {
        None => approve_admin_access("ResourceClaim", &At::root(claim).get("spec"), claim, world),
        Some(_) => Ok(()),
    },
    validate_status: claims::status,
    ..Rules::namespaced(GROUP)
};

static RESOURCE_CLAIM_TEMPLATE: Rules = Rules {
    kind: "ResourceClaimTemplate",
    validate: |template, errors| {
        let spec = template.get("spec");
        metadata::labels(&spec.dig(&["metadata", "labels"]), errors);
        claimed(&spec.dig(&["spec", "devices"]), errors);
    },
    validate_update: Some(|new, old, errors| {
        immutable_spec(new, old, "ResourceClaimTemplateSpec", errors);
    }),
    approve: |template, old, world| match old {
        // The template's part of the way is not told.
        None => {
            let spec = At::root(field(template, &["spec"])).get("spec");
            approve_admin_access("ResourceClaimTemplate", &spec, template, world)
        }
        Some(_) => Ok(()),
    },
    ..Rules::namespaced(GROUP)
};

static RESOURCE_SLICE: Rules = Rules {
    kind: "ResourceSlice",
    generation: true,
    warnings: |slice, _| {
        let driver = text(slice, &["spec", "driver"]);
        let words = || {
            format!(
                "spec.driver: driver names should be lowercase; {} contains uppercase characters",
                quote(driver)
            )
        };
        (driver != driver.to_lowercase())
            .then(words)
            .into_iter()
            .collect()
    },
    validate: |slice, errors| self::slice(&slice.get("spec"), None, errors),
    validate_update: Some(|new, old, errors| {
        slice(&new.get("spec"), Some(&old.get("spec")), errors);
    }),
    ..Rules::cluster(GROUP)
};

fn immutable_spec(new: &At<'_>, old: &At<'_>, kind: &str, errors: &mut Errors) {
    let spec = new.get("spec");
    if !same(spec.value, old.get("spec").value) {
        errors.invalid_shown(&spec, &diff::compact(kind, spec.value), IMMUTABLE);
    }
}

/// Names of requests, with those of their alternatives.
pub(super) type Requests<'v> = BTreeMap<&'v str, BTreeSet<&'v str>>;

pub(super) fn requests_of<'v>(devices: &At<'v>) -> Requests<'v> {
    let requests = devices.get("requests").items();
    requests
        .map(|request| {
            let choices = request.get("firstAvailable").items();
            let choices = choices.map(|choice| choice.get("name").text()).collect();
            (request.get("name").text(), choices)
        })
        .collect()
}

/// Devices are lent to who looks after them only in namespaces that are marked for it.
fn approve_admin_access(
    kind: &str,
    spec: &At<'_>,
    object: &Value,
    world: &dyn Lookup,
) -> Result<(), StatusError> {
    const MARK: &str = "resource.kubernetes.io/admin-access";
    let requests = spec.dig(&["devices", "requests"]);
    let asks = |request: &At<'_>| request.dig(&["exactly", "adminAccess"]).flag();
    let Some(first) = requests.items().find(asks) else {
        return Ok(());
    };
    let namespace = text(object, &["metadata", "namespace"]);
    let marked = world
        .get("namespaces", "", namespace)
        .is_some_and(|namespace| field(&namespace, &["metadata", "labels", MARK]) == "true");
    if marked {
        return Ok(());
    }
    let detail = format!(
        "admin access to devices requires the `{MARK}: true` label on the containing namespace"
    );
    let error = FieldError::forbidden(&first.get("adminAccess").path(), detail);
    let subject = Subject { group: GROUP, kind };
    Err(StatusError::invalid(
        subject,
        text(object, &["metadata", "name"]),
        &[error],
    ))
}

fn claimed(devices: &At<'_>, errors: &mut Errors) {
    let known = requests_of(devices);
    let requests = devices.get("requests");
    for request in requests.items() {
        self::request(&request, errors);
    }
    unique(&requests, |request| request.get("name").text(), errors);
    for constraint in devices.get("constraints").items() {
        references(&constraint.get("requests"), &known, errors);
        let [matching, distinct] =
            ["matchAttribute", "distinctAttribute"].map(|name| constraint.get(name));
        match [&matching, &distinct].into_iter().find(|at| at.is_set()) {
            Some(attribute) => fully_qualified(attribute, errors),
            None => errors.required(
                &constraint,
                "exactly one of \"matchAttribute\" or \"distinctAttribute\" is required, but multiple fields are set",
            ),
        }
    }
    for config in devices.get("config").items() {
        references(&config.get("requests"), &known, errors);
        configuration(&config, errors);
    }
}

fn request(request: &At<'_>, errors: &mut Errors) {
    errors.format(&request.get("name"), names::label);
    let (exact, choices) = (request.get("exactly"), request.get("firstAvailable"));
    const ONE: &str = "exactly one of `exactly` or `firstAvailable` is required";
    match (exact.is_set(), choices.is_empty()) {
        (true, true) => wanted(&exact, errors),
        (false, true) => errors.required(request, ONE),
        (true, false) => errors.invalid(
            request,
            Value::Null,
            format!("{ONE}, but multiple fields are set"),
        ),
        (false, false) => {
            for choice in choices.items() {
                errors.format(&choice.get("name"), names::label);
                wanted(&choice, errors);
            }
            unique(&choices, |choice| choice.get("name").text(), errors);
        }
    }
}

fn wanted(wanted: &At<'_>, errors: &mut Errors) {
    let class = wanted.get("deviceClassName");
    if class.is_empty() {
        errors.required(&class, "");
    } else {
        errors.format(&class, names::subdomain);
    }
    selectors(&wanted.get("selectors"), errors);
    let (mode, count) = (wanted.get("allocationMode"), wanted.get("count"));
    match mode.text() {
        "All" if count.number() != 0 => errors.invalid(
            &count,
            count.number(),
            "must not be specified when allocationMode is 'All'",
        ),
        "ExactCount" => errors.positive(&count),
        "All" => {}
        _ => errors.not_supported(&mode, &["All", "ExactCount"]),
    }
    for toleration in wanted.get("tolerations").items() {
        self::toleration(&toleration, errors);
    }
}

fn toleration(toleration: &At<'_>, errors: &mut Errors) {
    let [key, operator, value, effect] =
        ["key", "operator", "value", "effect"].map(|name| toleration.get(name));
    if !key.is_empty() {
        errors.format(&key, names::qualified_name);
    }
    match operator.text() {
        "Exists" if !value.is_empty() => {
            errors.invalid(&value, value.text(), "must be empty for operator `Exists`")
        }
        "Exists" => {}
        "Equal" => errors.format(&value, names::label_value),
        "" => errors.required(&operator, ""),
        _ => errors.not_supported(&operator, &["Equal", "Exists"]),
    }
    if !effect.is_empty() {
        errors.optional_choice(&effect, EFFECTS);
    }
}

fn selectors(selectors: &At<'_>, errors: &mut Errors) {
    for selector in selectors.items() {
        let cel = selector.get("cel");
        let expression = cel.get("expression");
        if !cel.is_set() {
            errors.required(&cel, "");
            continue;
        }
        if expression.text().len() > devices::LENGTH {
            errors.too_long(&expression, devices::LENGTH);
            continue;
        }
        match expressions::compile_of_device(expression.text()) {
            Err(complaint) => errors.invalid(&expression, expression.text(), complaint),
            Ok((_, cost)) if cost > devices::COST => {
                errors.forbidden(&expression, "too complex, exceeds cost limit");
            }
            Ok((compiled, _)) => {
                if let Some(other) = expressions::other_than(&compiled, &["bool"]) {
                    let detail = format!("must evaluate to bool or the unknown type, not {other}");
                    errors.invalid(&expression, expression.text(), detail);
                }
            }
        }
    }
}

pub(super) fn configuration(config: &At<'_>, errors: &mut Errors) {
    let opaque = config.get("opaque");
    if !opaque.is_set() {
        errors.required(&opaque, "");
        return;
    }
    csi_driver_name(&opaque.get("driver"), errors);
    let parameters = opaque.get("parameters");
    match parameters.value {
        Value::Null => errors.required(&parameters, ""),
        Value::Object(_) => {}
        _ => errors.invalid(
            &parameters,
            "<value omitted>",
            "must be a valid JSON object",
        ),
    }
}

/// A list of names of requests in the claim, each once.
pub(super) fn references(list: &At<'_>, known: &Requests<'_>, errors: &mut Errors) {
    for name in list.items() {
        reference(&name, known, errors);
    }
    unique(list, At::text, errors);
}

pub(super) fn reference(name: &At<'_>, known: &Requests<'_>, errors: &mut Errors) {
    const ONE_OF_THEM: &str = "must be the name of a request in the claim or the name of a request and a subrequest separated by '/'";
    let segments: Vec<&str> = name.text().split('/').collect();
    if segments.len() > 2 {
        errors.invalid(name, name.text(), ONE_OF_THEM);
        return;
    }
    for segment in &segments {
        errors.format_of(name, segment, names::label);
    }
    let found = match segments.as_slice() {
        [request] => known.contains_key(request),
        [request, choice] => known
            .get(request)
            .is_some_and(|choices| choices.contains(choice)),
        _ => false,
    };
    if !found {
        errors.invalid(name, name.text(), ONE_OF_THEM);
    }
}

pub(super) fn unique<'v>(list: &At<'v>, key: impl Fn(&At<'v>) -> &'v str, errors: &mut Errors) {
    let mut seen = BTreeSet::new();
    for item in list.items() {
        if !seen.insert(key(&item)) {
            errors.duplicate(&item, key(&item));
        }
    }
}

fn is_extended_resource(name: &str) -> bool {
    name.contains('/')
        && !name.contains("kubernetes.io/")
        && !name.starts_with("requests.")
        && names::qualified_name(&format!("requests.{name}")).is_empty()
}

fn identifier(at: &At<'_>, text: &str, errors: &mut Errors) {
    if text.len() > MAX_ID {
        errors.too_long(at, MAX_ID);
    }
    errors.format_of(at, text, names::c_identifier);
}

/// `name` or `domain/name`.
fn qualified(at: &At<'_>, text: &str, errors: &mut Errors) {
    match text.split('/').collect::<Vec<_>>().as_slice() {
        [name] => identifier(at, name, errors),
        [domain, name] => {
            if domain.is_empty() {
                errors.invalid(at, "", "the domain must not be empty");
            } else {
                let domain = Value::from(*domain);
                let place = At::root(&domain).reported_at(at);
                csi_driver_name(&place, errors);
            }
            if name.is_empty() {
                errors.invalid(at, "", "the name must not be empty");
            } else {
                identifier(at, name, errors);
            }
        }
        _ => {}
    }
}

fn fully_qualified(at: &At<'_>, errors: &mut Errors) {
    qualified(at, at.text(), errors);
    if !at.text().contains('/') {
        errors.invalid(
            at,
            at.text(),
            "a fully qualified name must be a domain and a name separated by a slash",
        );
    }
}

pub(super) fn pool_name(name: &At<'_>, errors: &mut Errors) {
    if name.is_empty() {
        errors.required(name, "");
        return;
    }
    if name.len() > MAX_POOL_NAME {
        errors.too_long(name, MAX_POOL_NAME);
    }
    for part in name.text().split('/') {
        errors.format_of(name, part, names::subdomain);
    }
}

fn slice(spec: &At<'_>, old: Option<&At<'_>>, errors: &mut Errors) {
    csi_driver_name(&spec.get("driver"), errors);
    let pool = spec.get("pool");
    pool_name(&pool.get("name"), errors);
    errors.positive(&pool.get("resourceSliceCount"));
    let generation = pool.get("generation");
    if generation.number() < 0 {
        errors.invalid(
            &generation,
            generation.number(),
            "must be greater than or equal to zero",
        );
    }
    if let Some(old) = old {
        errors.immutable_text(&pool.get("name"), &old.dig(&["pool", "name"]));
        errors.immutable_text(&spec.get("driver"), &old.get("driver"));
        errors.immutable(&spec.get("nodeName"), &old.get("nodeName"));
    }
    where_from(spec, errors);
    let (devices, counters) = (spec.get("devices"), spec.get("sharedCounters"));
    if devices.is_set() && counters.is_set() {
        errors.invalid(
            spec,
            "",
            "only one of `sharedCounters` or `devices` is allowed",
        );
    }
    for device in devices.items() {
        self::device(&device, spec.get("perDeviceNodeSelection").flag(), errors);
    }
    unique(&devices, |device| device.get("name").text(), errors);
    for set in counters.items() {
        counter_set(&set, "name", errors);
    }
    unique(&counters, |set| set.get("name").text(), errors);
}

/// Counters under the name of their set, which the field `name` has.
fn counter_set(set: &At<'_>, name: &'static str, errors: &mut Errors) {
    let name = set.get(name);
    if name.is_empty() {
        errors.required(&name, "");
    } else {
        errors.format(&name, names::label);
    }
    let counters = set.get("counters");
    errors.non_empty(&counters);
    for (counter, _) in counters.entries() {
        errors.format_of(&counters, counter, names::label);
    }
}

/// Conditions of success and of failure come together, and are different ones.
pub(super) fn binding_conditions(device: &At<'_>, errors: &mut Errors) {
    let [good, bad] =
        ["bindingConditions", "bindingFailureConditions"].map(|name| device.get(name));
    for condition in good.items() {
        errors.format(&condition, names::qualified_name);
    }
    let known: BTreeSet<&str> = good.texts().collect();
    for failure in bad.items() {
        errors.format(&failure, names::qualified_name);
        if known.contains(failure.text()) {
            errors.invalid(
                &failure,
                failure.text(),
                "bindingFailureConditions must not overlap with bindingConditions",
            );
        }
    }
    if good.is_empty() && !bad.is_empty() {
        errors.invalid(
            &good,
            good.value.clone(),
            "bindingConditions are required to use bindingFailureConditions",
        );
    }
    if bad.is_empty() && !good.is_empty() {
        errors.invalid(
            &bad,
            bad.value.clone(),
            "bindingFailureConditions are required to use bindingConditions",
        );
    }
}

/// A slice says in exactly one way which nodes its devices are for.
fn where_from(spec: &At<'_>, errors: &mut Errors) {
    const WAYS: &str = "`nodeName`, `nodeSelector`, `allNodes`, `perDeviceNodeSelection`";
    let mut chosen = Vec::new();
    let node = spec.get("nodeName");
    if node.is_set() {
        if node.is_empty() {
            errors.invalid(
                &node,
                "",
                "must be either unset or set to a non-empty string",
            );
        } else {
            chosen.push("`nodeName`");
            errors.format(&node, names::subdomain);
        }
    }
    let selector = spec.get("nodeSelector");
    if selector.is_set() {
        chosen.push("`nodeSelector`");
        scheduling::node_selector(&selector, errors);
        let terms = selector.get("nodeSelectorTerms");
        if terms.len() != 1 {
            errors.invalid_shown(
                &terms,
                &diff::compact("[]NodeSelectorTerm", terms.value),
                "must have exactly one node selector term",
            );
        }
    }
    for (name, words) in [
        ("allNodes", "`allNodes`"),
        ("perDeviceNodeSelection", "`perDeviceNodeSelection`"),
    ] {
        let flag = spec.get(name);
        if flag.flag() {
            chosen.push(words);
        } else if flag.is_set() {
            errors.invalid(&flag, false, "must be either unset or set to true");
        }
    }
    match chosen.as_slice() {
        [] => errors.required(spec, &format!("exactly one of {WAYS} is required")),
        [_] => {}
        many => errors.invalid(
            spec,
            format!("{{{}}}", many.join(", ")),
            format!("exactly one of {WAYS} is required, but multiple fields are set"),
        ),
    }
}

fn device(device: &At<'_>, chooses_nodes: bool, errors: &mut Errors) {
    errors.format(&device.get("name"), names::label);
    let attributes = device.get("attributes");
    for (name, value) in attributes.entries() {
        qualified(&attributes, name, errors);
        attribute(&value, errors);
    }
    let capacity = device.get("capacity");
    for (name, value) in capacity.entries() {
        qualified(&capacity, name, errors);
        let policy = value.get("requestPolicy");
        if policy.is_set() && !device.get("allowMultipleAllocations").flag() {
            errors.forbidden(&policy, "allowMultipleAllocations must be true");
        }
    }
    for taint in device.get("taints").items() {
        errors.format(&taint.get("key"), names::qualified_name);
        if !taint.get("value").is_empty() {
            errors.format(&taint.get("value"), names::label_value);
        }
        errors.choice(&taint.get("effect"), EFFECTS);
    }
    for consumption in device.get("consumesCounters").items() {
        counter_set(&consumption, "counterSet", errors);
    }
    binding_conditions(device, errors);
    let own_nodes = ["nodeName", "nodeSelector", "allNodes"];
    let chosen = own_nodes
        .iter()
        .filter(|name| device.get(name).is_set())
        .count();
    if chooses_nodes && chosen != 1 {
        errors.required(device, "exactly one of `nodeName`, `nodeSelector`, or `allNodes` is required when `perDeviceNodeSelection` is set to true in the ResourceSlice spec");
    } else if !chooses_nodes && chosen > 0 {
        errors.invalid(device, Value::Null, "`nodeName`, `nodeSelector` and `allNodes` can only be set if `perDeviceNodeSelection` is set to true in the ResourceSlice spec");
    }
}

const MAX_ATTRIBUTE: usize = 64;

fn attribute(value: &At<'_>, errors: &mut Errors) {
    let text = value.get("string");
    if text.len() > MAX_ATTRIBUTE {
        errors.too_long(&text, MAX_ATTRIBUTE);
    }
    let version = value.get("version");
    if version.is_set() && !is_semantic_version(version.text()) {
        errors.invalid(
            &version,
            version.text(),
            "must be a string compatible with semver.org spec 2.0.0",
        );
    }
    match value.value.as_object().map_or(0, serde_json::Map::len) {
        1 => {}
        0 => errors.invalid(value, "", "exactly one value must be specified"),
        _ => errors.invalid_shown(
            value,
            &diff::compact("DeviceAttribute", value.value),
            "exactly one value must be specified",
        ),
    }
}

/// `MAJOR.MINOR.PATCH`, with `-PRERELEASE` and `+BUILD` at will.
fn is_semantic_version(text: &str) -> bool {
    let (rest, build) = text
        .split_once('+')
        .map_or((text, None), |(a, b)| (a, Some(b)));
    let (numbers, early) = rest
        .split_once('-')
        .map_or((rest, None), |(a, b)| (a, Some(b)));
    let is_number = |part: &str| {
        !part.is_empty()
            && part.bytes().all(|byte| byte.is_ascii_digit())
            && (part == "0" || !part.starts_with('0'))
    };
    let is_word = |part: &str| {
        !part.is_empty()
            && part
                .bytes()
                .all(|byte| byte.is_ascii_alphanumeric() || byte == b'-')
    };
    let is_early = |part: &str| {
        is_word(part) && (is_number(part) || part.bytes().any(|byte| !byte.is_ascii_digit()))
    };
    numbers.split('.').count() == 3
        && numbers.split('.').all(is_number)
        && early.is_none_or(|early| early.split('.').all(is_early))
        && build.is_none_or(|build| build.split('.').all(is_word))
}

#[cfg(test)]
mod tests {
    use super::is_semantic_version;

    #[test]
    fn versions_are_semantic() {
        for good in [
            "1.2.3",
            "0.0.0",
            "1.0.0-alpha.1",
            "1.0.0+build.05",
            "1.0.0-x-y.z+1",
        ] {
            assert!(is_semantic_version(good), "{good}");
        }
        for bad in [
            "", "1", "1.2", "01.2.3", "1.2.3-", "1.2.3-01", "1.2.3+", "v1.2.3",
        ] {
            assert!(!is_semantic_version(bad), "{bad}");
        }
    }
}
