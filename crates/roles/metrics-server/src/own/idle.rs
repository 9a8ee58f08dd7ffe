//! Families of the original's server library about what does not happen here, by our nature: nothing is stored, so nothing
//! is encrypted or validated; nobody is called back; there are no peers. They say so, with the true number.

use plimsoll_metrics::{Exposition, Histogram};

/// Counters of what never happened.
const NEVER: [(&str, &str); 15] = [
    (
        "aggregator_discovery_aggregation_count_total",
        "[ALPHA] Times that what other servers offer was gathered.",
    ),
    (
        "aggregator_discovery_nopeer_requests_total",
        "[ALPHA] Requests for what this server alone offers.",
    ),
    (
        "aggregator_discovery_peer_aggregated_cache_hits_total",
        "[ALPHA] Times that it was known what peers offer.",
    ),
    (
        "aggregator_discovery_peer_aggregated_cache_misses_total",
        "[ALPHA] Times that peers had to be asked what they offer.",
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
        "apiserver_storage_envelope_transformation_cache_misses_total",
        "[ALPHA] Keys for stored data that had to be fetched.",
    ),
    (
        "apiserver_validation_declarative_validation_mismatch_total",
        "[BETA] Times that two ways of validating did not agree.",
    ),
    (
        "apiserver_validation_declarative_validation_panic_total",
        "[BETA] Times that validating ended in a panic.",
    ),
    (
        "apiserver_validation_duplicate_validation_error_total",
        "[INTERNAL] Times that an error was found twice.",
    ),
    (
        "apiserver_webhooks_x509_insecure_sha1_total",
        "[ALPHA] Webhooks that showed a certificate signed with SHA-1.",
    ),
    (
        "apiserver_webhooks_x509_missing_san_total",
        "[ALPHA] Webhooks that showed a certificate without names.",
    ),
    (
        "cardinality_enforcement_unexpected_categorizations_total",
        "[ALPHA] Series that were too many.",
    ),
    (
        "disabled_metrics_total",
        "[BETA] Families that are switched off.",
    ),
    ("hidden_metrics_total", "[BETA] Families that are hidden."),
];

/// Durations of what never happened: doubling from five microseconds, and ages of certificates.
const KEYS_MADE_WITHIN: [f64; 14] = [
    5e-6, 1e-5, 2e-5, 4e-5, 8e-5, 0.00016, 0.00032, 0.00064, 0.00128, 0.00256, 0.00512, 0.01024,
    0.02048, 0.04096,
];
const AGES: [f64; 11] = [
    600.0, 1800.0, 3600.0, 14_400.0, 86_400.0, 604_800.0, 2.592e6, 7.776e6, 1.5552e7, 3.1104e7,
    1.24416e8,
];
const VALIDATED_WITHIN: [f64; 21] = [
    0.05, 0.1, 0.2, 0.4, 0.6, 0.8, 1.0, 1.25, 1.5, 2.0, 3.0, 4.0, 5.0, 6.0, 8.0, 10.0, 15.0, 20.0,
    30.0, 45.0, 60.0,
];

pub fn write(page: &mut Exposition) {
    for (name, help) in NEVER {
        page.family(name, "counter", help);
        page.sample(name, &[], 0.0);
    }
    let name = "rest_client_transport_cert_rotation_gc_calls_total";
    let help = "[ALPHA] Watches of certificates that ended because nobody needed them.";
    page.family(name, "counter", help);
    page.sample(name, &[], 0.0);
    for (name, help, value) in [
        (
            "apiserver_envelope_encryption_dek_cache_fill_percent",
            "[ALPHA] How full the cache of keys for stored data is.",
            0.0,
        ),
        (
            "rest_client_exec_plugin_ttl_seconds",
            "[ALPHA] How long certificates of exec plugins are good for; without any, for ever.",
            f64::INFINITY,
        ),
    ] {
        page.family(name, "gauge", help);
        page.sample(name, &[], value);
    }
    let labels: [(&str, &str); 1] = [("field_validation", "")];
    for (name, help, bounds, labels) in [
        (
            "apiserver_storage_data_key_generation_duration_seconds",
            "[ALPHA] Time that making keys for stored data took.",
            &KEYS_MADE_WITHIN[..],
            &[][..],
        ),
        (
            "rest_client_exec_plugin_certificate_rotation_age",
            "[ALPHA] How old certificates of exec plugins were when they were replaced.",
            &AGES[..],
            &[][..],
        ),
        (
            "field_validation_request_duration_seconds",
            "[ALPHA] Time that requests took by how closely their fields are looked at.",
            &VALIDATED_WITHIN[..],
            &labels[..],
        ),
    ] {
        page.family(name, "histogram", help);
        page.histogram(name, labels, &Histogram::new(bounds.into()));
    }
}

/// How many families there are, by how stable they are: what the page says so far, and itself.
pub fn count_families(page: &mut Exposition) {
    let name = "registered_metrics_total";
    let level = |help: &str| {
        let levels = ["[ALPHA]", "[BETA]", "[INTERNAL]", "[STABLE]"];
        levels.into_iter().find(|level| help.starts_with(level))
    };
    let mut counts = std::collections::BTreeMap::from([("[BETA]", 1)]);
    for line in page.as_str().lines() {
        let help = line
            .strip_prefix("# HELP ")
            .and_then(|rest| rest.split_once(' '));
        if let Some(level) = help.and_then(|(_, help)| level(help)) {
            *counts.entry(level).or_insert(0) += 1;
        }
    }
    let help = "[BETA] Families, by how stable they are.";
    page.family(name, "counter", help);
    for (level, count) in counts {
        let level = level.trim_matches(['[', ']']);
        let labels = [("deprecated_version", ""), ("stability_level", level)];
        page.sample(name, &labels, f64::from(count));
    }
}
