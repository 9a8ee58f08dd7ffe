//! Rights that a write needs beside that of its verb: who approves or signs certificates needs the signer's, and who
//! makes a policy speak of other objects has to be able to read them; who gives out devices needs the right to.

use std::collections::BTreeSet;

use plimsoll_serving::auth::organizations_of_request;
use serde_json::Value;

use crate::auth::{MASTERS, User, service_account};
use crate::field::{FieldError, Path};
use crate::kinds::{Lookup, signing};
use crate::request::{RequestInfo, ResourcePath};
use crate::rest::{Call, meta};
use crate::status::StatusError;
use plimsoll_golang::strconv::quote;

const REQUESTS: &str = "certificatesigningrequests.certificates.k8s.io";
const POLICIES: &str = "validatingadmissionpolicies.admissionregistration.k8s.io";
const BINDINGS: &str = "validatingadmissionpolicybindings.admissionregistration.k8s.io";
const CLAIMS: &str = "resourceclaims.resource.k8s.io";
const GROUP: &str = "certificates.k8s.io";
/// Signs for users of the API server.
const OF_CLIENTS: &str = "kubernetes.io/kube-apiserver-client";

/// Refuses a write to whom one of them is missing.
pub fn check(call: &Call<'_>, new: &Value, old: Option<&Value>) -> Result<(), StatusError> {
    let unreadable = match call.served.shelf.as_ref() {
        REQUESTS => return check_signing(call, new, old),
        POLICIES => parameters_of_policy(call, new, old),
        BINDINGS => parameters_of_binding(call, new),
        CLAIMS if call.path.subresource == "status" => {
            old.and_then(|old| allocation(call, new, old).or_else(|| devices(call, new, old)))
        }
        _ => None,
    };
    match unreadable {
        None => Ok(()),
        Some(error) => Err(call.invalid(meta(new, "name"), &[error])),
    }
}

/// Refuses what may not be asked for, approved or signed.
fn check_signing(call: &Call<'_>, new: &Value, old: Option<&Value>) -> Result<(), StatusError> {
    let signer = signer_of(old.unwrap_or(new));
    let why = match (call.path.subresource.as_str(), old) {
        ("", None) => for_masters(new),
        ("approval", Some(_)) => not_permitted(call, "approve", signer),
        ("status", Some(old)) if signs(new, old) => not_permitted(call, "sign", signer),
        _ => None,
    };
    match why {
        None => Ok(()),
        Some(why) => {
            let subject = call.served.resource.as_subject();
            Err(StatusError::forbidden(subject, meta(new, "name"), &why))
        }
    }
}

/// The resource of a policy's parameters; everything, if nobody knows it.
fn resource_of(call: &Call<'_>, kind: &Value) -> ResourcePath {
    let text = |field: &str| kind[field].as_str().unwrap_or_default();
    let catalogue = call.server.catalogue();
    let found = catalogue.find_kind(text("apiVersion"), text("kind"));
    let all = || "*".to_owned();
    let (group, resource) = found.map_or_else(
        || (all(), all()),
        |found| (found.resource.group.clone(), found.resource.plural.clone()),
    );
    ResourcePath {
        group,
        resource,
        ..ResourcePath::default()
    }
}

fn may(call: &Call<'_>, verb: &'static str, on: ResourcePath) -> bool {
    refusal(call, verb, on).is_none()
}

fn refusal(call: &Call<'_>, verb: &'static str, on: ResourcePath) -> Option<StatusError> {
    let asked = RequestInfo {
        verb,
        resource: Some(on),
        ..RequestInfo::default()
    };
    call.server.authority().authorize(call.user, &asked).err()
}

fn part_of_claims(part: &str) -> ResourcePath {
    ResourcePath {
        group: "resource.k8s.io".to_owned(),
        resource: "resourceclaims".to_owned(),
        subresource: part.to_owned(),
        ..ResourcePath::default()
    }
}

/// Who gives a claim its devices, or to somebody, does what schedulers do.
fn allocation(call: &Call<'_>, new: &Value, old: &Value) -> Option<FieldError> {
    let same = |field: &str| new["status"][field] == old["status"][field];
    if same("allocation") && same("reservedFor") {
        return None;
    }
    let verb = call.info.verb;
    let refused = refusal(call, verb, part_of_claims("binding"))?;
    let why = format!(
        "changing status.allocation or status.reservedFor requires resource=\"resourceclaims/binding\", verb={} permission: {}",
        quote(verb),
        refused.message
    );
    let path = Path::new("status").child("allocation");
    Some(FieldError::forbidden(&path, why))
}

/// Who says how devices are does so for their drivers: for those of the node that their pod is on, or for any.
fn devices(call: &Call<'_>, new: &Value, old: &Value) -> Option<FieldError> {
    let (associated, arbitrary) = match call.info.verb {
        "update" => ("associated-node:update", "arbitrary-node:update"),
        _ => ("associated-node:patch", "arbitrary-node:patch"),
    };
    let is_near = is_on_their_node(call.user, old);
    let verbs = if is_near {
        vec![associated, arbitrary]
    } else {
        vec![arbitrary]
    };
    for driver in changed_drivers(&new["status"]["devices"], &old["status"]["devices"]) {
        let of_driver = || ResourcePath {
            namespace: call.path.namespace.clone(),
            name: driver.to_owned(),
            ..part_of_claims("driver")
        };
        let refusals = verbs.iter().map(|verb| refusal(call, verb, of_driver()));
        let refused: Option<Vec<StatusError>> = refusals.collect();
        let Some(refused) = refused.and_then(|mut refused| refused.pop()) else {
            continue;
        };
        let why = format!(
            "changing status.devices requires resource=\"resourceclaims/driver\", verb=\"[{}]\" permission: {}",
            verbs.join(" "),
            refused.message
        );
        let path = Path::new("status").child("devices");
        return Some(FieldError::forbidden(&path, why));
    }
    None
}

/// Drivers of devices that are not told as before.
fn changed_drivers<'a>(new: &'a Value, old: &'a Value) -> BTreeSet<&'a str> {
    let devices = |list: &'a Value| list.as_array().into_iter().flatten();
    let shown = |list: &'a Value| -> BTreeSet<(&'a str, String)> {
        devices(list)
            .map(|device| {
                let driver = device["driver"].as_str().unwrap_or_default();
                (driver, device.to_string())
            })
            .collect()
    };
    let (new, old) = (shown(new), shown(old));
    let changed = new.symmetric_difference(&old);
    changed.map(|(driver, _)| *driver).collect()
}

/// Whether the claim's devices are on the node of the pod that asks.
fn is_on_their_node(user: &User, claim: &Value) -> bool {
    let node = user.extra.get(service_account::EXTRA_NODE_NAME);
    let Some([node]) = node.map(Vec::as_slice) else {
        return false;
    };
    let terms = claim["status"]["allocation"]["nodeSelector"]["nodeSelectorTerms"].as_array();
    let fields = terms
        .into_iter()
        .flatten()
        .filter_map(|term| term["matchFields"].as_array())
        .flatten();
    let mut named = fields.filter(|field| field["key"] == "metadata.name");
    named.any(|field| field["operator"] == "In" && field["values"] == serde_json::json!([node]))
}

fn parameters_of_policy(call: &Call<'_>, new: &Value, old: Option<&Value>) -> Option<FieldError> {
    let kind = &new["spec"]["paramKind"];
    if kind.is_null() || old.is_some_and(|old| old["spec"]["paramKind"] == *kind) {
        return None;
    }
    let all = ResourcePath {
        namespace: "*".to_owned(),
        name: "*".to_owned(),
        ..resource_of(call, kind)
    };
    if may(call, "get", all) {
        return None;
    }
    let why = format!(
        "user {} must have \"get\" permission on all objects of the referenced paramKind (kind={}, apiVersion={})",
        shown(call.user),
        kind["kind"].as_str().unwrap_or_default(),
        kind["apiVersion"].as_str().unwrap_or_default(),
    );
    Some(FieldError::forbidden(
        &Path::new("spec").child("paramKind"),
        why,
    ))
}

fn parameters_of_binding(call: &Call<'_>, new: &Value) -> Option<FieldError> {
    let reference = &new["spec"]["paramRef"];
    if reference.is_null() {
        return None;
    }
    let text = |field: &str| reference[field].as_str().unwrap_or_default().to_owned();
    let policy = new["spec"]["policyName"].as_str().unwrap_or_default();
    let policy = call.server.get(POLICIES, "", policy).unwrap_or_default();
    let named = ResourcePath {
        namespace: text("namespace"),
        name: text("name"),
        ..resource_of(call, &policy["spec"]["paramKind"])
    };
    let verb = if named.name.is_empty() { "list" } else { "get" };
    if may(call, verb, named) {
        return None;
    }
    let why = format!(
        "user {} does not have {} permission on the object referenced by paramRef",
        shown(call.user),
        quote(verb)
    );
    Some(FieldError::forbidden(
        &Path::new("spec").child("paramRef"),
        why,
    ))
}

/// As Go prints it.
fn shown(user: &User) -> String {
    let extra: Vec<String> = user
        .extra
        .iter()
        .map(|(key, values)| format!("{key}:[{}]", values.join(" ")))
        .collect();
    format!(
        "&{{{} {} [{}] map[{}]}}",
        user.name,
        user.uid,
        user.groups.join(" "),
        extra.join(" ")
    )
}

fn signer_of(request: &Value) -> &str {
    request["spec"]["signerName"].as_str().unwrap_or_default()
}

fn signs(new: &Value, old: &Value) -> bool {
    let fields = ["certificate", "conditions"];
    fields
        .iter()
        .any(|field| new["status"][field] != old["status"][field])
}

/// Rights are for a signer, or for all of its domain.
fn not_permitted(call: &Call<'_>, verb: &'static str, signer: &str) -> Option<String> {
    let domain = signer.split('/').next().unwrap_or_default();
    let may = |name: &str| {
        let signer = ResourcePath {
            group: GROUP.to_owned(),
            resource: "signers".to_owned(),
            name: name.to_owned(),
            ..ResourcePath::default()
        };
        may(call, verb, signer)
    };
    if may(signer) || may(&format!("{domain}/*")) {
        return None;
    }
    let signer = quote(signer);
    Some(format!(
        "user not permitted to {verb} requests with signerName {signer}"
    ))
}

/// Nobody becomes everybody's master by a certificate.
fn for_masters(request: &Value) -> Option<String> {
    if signer_of(request) != OF_CLIENTS {
        return None;
    }
    let text = request["spec"]["request"].as_str().unwrap_or_default();
    let groups = signing::request_der(text).and_then(|der| organizations_of_request(&der));
    match groups {
        None => Some("failed to parse the certificate request".to_owned()),
        Some(groups) if groups.iter().any(|group| group == MASTERS) => Some(format!(
            "use of {OF_CLIENTS} signer with {MASTERS} group is not allowed"
        )),
        Some(_) => None,
    }
}
