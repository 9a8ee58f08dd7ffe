//! Who may have certificates signed, and by whom: rights that are asked for beside those to write the requests.

use plimsoll_ground::auth::organizations_of_request;
use serde_json::Value;

use crate::auth::MASTERS;
use crate::field::quote;
use crate::kinds::signing;
use crate::rest::{Call, meta};
use crate::status::Failure;

const REQUESTS: &str = "certificatesigningrequests.certificates.k8s.io";
const GROUP: &str = "certificates.k8s.io";
/// Signs for users of the API server.
const OF_CLIENTS: &str = "kubernetes.io/kube-apiserver-client";

/// Refuses what may not be asked for, approved or signed.
pub fn check(call: &Call<'_>, new: &Value, old: Option<&Value>) -> Result<(), Failure> {
    if call.served.shelf.as_ref() != REQUESTS {
        return Ok(());
    }
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
fn not_permitted(call: &Call<'_>, verb: &str, signer: &str) -> Option<String> {
    let domain = signer.split('/').next().unwrap_or_default();
    let authority = call.server.authority();
    let may = |name: &str| authority.allows(call.user, verb, GROUP, "signers", name);
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
