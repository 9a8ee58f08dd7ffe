//! Requests to have certificates signed.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use jiff::Timestamp;
use serde_json::Value;

use super::at::{At, Errors};
use super::names::{self, NameRule};
use super::rules::Rules;
use crate::met::Met;
use plimsoll_golang::strconv::quote;
use plimsoll_golang::time::show_seconds;

pub(super) static KINDS: &[&Rules] = &[&SIGNING_REQUEST];

/// What a certificate may be asked to be good for.
const USAGES: &[&str] = &[
    "any",
    "cert sign",
    "client auth",
    "code signing",
    "content commitment",
    "crl sign",
    "data encipherment",
    "decipher only",
    "digital signature",
    "email protection",
    "encipher only",
    "ipsec end system",
    "ipsec tunnel",
    "ipsec user",
    "key agreement",
    "key encipherment",
    "microsoft sgc",
    "netscape sgc",
    "ocsp signing",
    "s/mime",
    "server auth",
    "signing",
    "timestamping",
];

static SIGNING_REQUEST: Rules = Rules {
    kind: "CertificateSigningRequest",
    names: NameRule::PathSegment,
    status: true,
    validate: |request, errors| {
        let spec = request.get("spec");
        let pem = spec.get("request");
        if let Err(complaint) = readable(pem.text()) {
            errors.invalid(&pem, pem.value.clone(), complaint);
        }
        usages(&spec.get("usages"), errors);
        let signer = spec.get("signerName");
        if signer.text() == LEGACY_SIGNER {
            errors.invalid(
                &signer,
                signer.text(),
                "the legacy signerName is not allowed via this API version",
            );
        } else {
            signer_name(&signer, errors);
        }
        let expiration = spec.get("expirationSeconds");
        if expiration.is_set() && expiration.number() < 600 {
            errors.invalid(
                &expiration,
                expiration.number(),
                "may not specify a duration less than 600 seconds (10 minutes)",
            );
        }
    },
    ..Rules::cluster("certificates.k8s.io")
};

const LEGACY_SIGNER: &str = "kubernetes.io/legacy-unknown";

/// When each condition came to be, unless whoever writes it says so.
pub(crate) fn note_times(shelf: &str, new: &mut Value, old: &Value, now: Timestamp) {
    if shelf != "certificatesigningrequests.certificates.k8s.io" {
        return;
    }
    let before = old["status"]["conditions"].as_array();
    let now = show_seconds(now);
    let conditions = new.pointer_mut("/status/conditions");
    let conditions = conditions.and_then(Value::as_array_mut);
    for condition in conditions.into_iter().flatten() {
        if condition["lastUpdateTime"].is_null() {
            condition["lastUpdateTime"] = now.as_str().into();
        }
        if condition["lastTransitionTime"].is_null() {
            let mut before = before.into_iter().flatten();
            let same = before.find(|one| {
                one["type"] == condition["type"] && one["status"] == condition["status"]
            });
            let since = same.and_then(|one| one["lastTransitionTime"].as_str());
            condition["lastTransitionTime"] = since.unwrap_or(&now).into();
        }
    }
}

/// The request in the text, which is base64 of PEM.
pub(crate) fn request_der(text: &str) -> Option<Vec<u8>> {
    let pem = STANDARD.decode(text).ok()?;
    let pem = String::from_utf8_lossy(&pem);
    let body = pem
        .strip_prefix("-----BEGIN CERTIFICATE REQUEST-----")
        .and_then(|rest| rest.split("-----END CERTIFICATE REQUEST-----").next())?;
    let letters: String = body.split_whitespace().collect();
    STANDARD.decode(letters).ok()
}

/// Whether there is a request in the text. What is in it is up to who signs.
fn readable(text: &str) -> Result<(), &'static str> {
    let bytes = request_der(text).ok_or("PEM block type must be CERTIFICATE REQUEST")?;
    match sequence_end(&bytes) {
        Some(end) if end == bytes.len() => Ok(()),
        Some(end) if end < bytes.len() => Err("asn1: syntax error: trailing data"),
        _ => Err("asn1: syntax error: data truncated"),
    }
}

/// Where the outermost ASN.1 element says that it ends; `None` if not even that is there.
fn sequence_end(bytes: &[u8]) -> Option<usize> {
    let length = *bytes.get(1)?;
    if length < 0x80 {
        return Some(2 + usize::from(length));
    }
    let digits = usize::from(length & 0x7f);
    let given = bytes.get(2..2 + digits)?;
    let length = given.iter().try_fold(0_usize, |sum, digit| {
        sum.checked_mul(256)?.checked_add(usize::from(*digit))
    })?;
    (2 + digits).checked_add(length)
}

fn usages(usages: &At<'_>, errors: &mut Errors) {
    errors.non_empty(usages);
    for usage in usages.items() {
        errors.optional_choice(&usage, USAGES);
    }
    let mut seen = Met::default();
    for usage in usages.items() {
        if seen.contains(&usage.text()) {
            errors.duplicate(&usage, usage.text());
        }
        seen.push(usage.text());
    }
}

/// A domain, and a path of one step.
fn signer_name(signer: &At<'_>, errors: &mut Errors) {
    if signer.is_empty() {
        errors.required(signer, "");
        return;
    }
    let parts = signer.text().split_once('/');
    let Some((domain, path)) = parts.filter(|(_, path)| !path.contains('/')) else {
        errors.invalid(
            signer,
            signer.text(),
            "must be a fully qualified domain and path of the form 'example.com/signer-name'",
        );
        return;
    };
    if domain.len() > 253 {
        errors.too_long(signer, 253);
    }
    first_bad_label(signer, domain, names::label, errors);
    if !domain.contains('.') {
        errors.invalid(
            signer,
            domain,
            "should be a domain with at least two segments separated by dots",
        );
    }
    first_bad_label(signer, path, names::subdomain, errors);
    // Room for a label and a subdomain behind the domain.
    let longest = 253 + 1 + 253 + 1 + 63;
    if signer.len() > longest {
        errors.too_long(signer, longest);
    }
}

fn first_bad_label(
    signer: &At<'_>,
    part: &str,
    rule: fn(&str) -> Vec<String>,
    errors: &mut Errors,
) {
    let complaints = part.split('.').map(|label| (label, rule(label)));
    let mut bad = complaints.filter(|(_, complaints)| !complaints.is_empty());
    if let Some((label, complaints)) = bad.next() {
        for complaint in complaints {
            let detail = format!("validating label {}: {complaint}", quote(label));
            errors.invalid(signer, part, detail);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(der: &[u8], expected: Result<(), &str>) {
        let body = STANDARD.encode(der);
        let pem = format!(
            "-----BEGIN CERTIFICATE REQUEST-----\n{body}\n-----END CERTIFICATE REQUEST-----\n"
        );
        assert_eq!(readable(&STANDARD.encode(pem)), expected);
    }

    #[test]
    fn a_request_is_as_long_as_it_says() {
        check(&[0x30, 2, 5, 0], Ok(()));
        check(&[0x30, 0x81, 2, 5, 0], Ok(()));
        check(
            &[0x30, 2, 5, 0, 0],
            Err("asn1: syntax error: trailing data"),
        );
        check(&[0x30, 0x81], Err("asn1: syntax error: data truncated"));
        check(&[0x30, 9, 5, 0], Err("asn1: syntax error: data truncated"));
    }
}
