//! Rights that a write needs beside that of its verb: who approves or signs certificates needs the signer's, and who
//! makes a policy speak of other objects has to be able to read them.

use plimsoll_ground::auth::organizations_of_request;
use serde_json::Value;

use crate::auth::{MASTERS, User};
use crate::field::{FieldError, Path, quote};
use crate::kinds::{Lookup, signing};
use crate::request::{RequestInfo, ResourcePath};
use crate::rest::{Call, meta};
use crate::status::Failure;

const REQUESTS: &str = "certificatesigningrequests.certificates.k8s.io";
const POLICIES: &str = "validatingadmissionpolicies.admissionregistration.k8s.io";
const BINDINGS: &str = "validatingadmissionpolicybindings.admissionregistration.k8s.io";
const GROUP: &str = "certificates.k8s.io";
/// Signs for users of the API server.
const OF_CLIENTS: &str = "kubernetes.io/kube-apiserver-client";

/// Refuses a write to whom one of them is missing.
pub fn check(call: &Call<'_>, new: &Value, old: Option<&Value>) -> Result<(), Failure> {
    let unreadable = match call.served.shelf.as_ref() {
        REQUESTS => return check_signing(call, new, old),
        POLICIES => parameters_of_policy(call, new, old),
        BINDINGS => parameters_of_binding(call, new),
        _ => None,
    };
    match unreadable {
        None => Ok(()),
        Some(error) => Err(call.invalid(meta(new, "name"), &[error])),
    }
}

/// Refuses what may not be asked for, approved or signed.
fn check_signing(call: &Call<'_>, new: &Value, old: Option<&Value>) -> Result<(), Failure> {
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
            Err(Failure::forbidden(subject, meta(new, "name"), &why))
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
    let asked = RequestInfo {
        verb,
        resource: Some(on),
        ..RequestInfo::default()
    };
    call.server.authority().authorize(call.user, &asked).is_ok()
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
