//! Families of the original's server library about what does not happen here, by our nature: nothing is stored, so nothing is
//! encrypted; nobody is called back. They say so, with the true number.

use plimsoll_ground::metrics::Page;

/// Counters of what never happened.
const NEVER: [(&str, &str); 5] = [
    (
        "apiserver_audit_event_total",
        "[ALPHA] Events that were audited.",
    ),
    (
        "apiserver_audit_requests_rejected_total",
        "[ALPHA] Requests that were refused for want of an audit log.",
    ),
    (
        "apiserver_storage_data_key_generation_failures_total",
        "[ALPHA] Keys for stored data that could not be made.",
    ),
    (
        "apiserver_webhooks_x509_insecure_sha1_total",
        "[ALPHA] Webhooks that showed a certificate signed with SHA-1.",
    ),
    (
        "apiserver_webhooks_x509_missing_san_total",
        "[ALPHA] Webhooks that showed a certificate without names.",
    ),
];

pub fn write(page: &mut Page) {
    for (name, help) in NEVER {
        page.family(name, "counter", help);
        page.sample(name, &[], 0.0);
    }
}
