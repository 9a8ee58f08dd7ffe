//! What controllers report about the pods they keep.

use crate::kinds::at::{At, Errors};

pub(super) fn replica_counts(status: &At<'_>, fields: &[&'static str], errors: &mut Errors) {
    for field in fields {
        not_above(status, field, "replicas", "status.replicas", errors);
    }
}

pub(super) fn not_above(
    status: &At<'_>,
    field: &'static str,
    bound: &'static str,
    called: &str,
    errors: &mut Errors,
) {
    let at = status.get(field);
    if at.number() > status.get(bound).number() {
        errors.invalid(&at, at.number(), format!("cannot be greater than {called}"));
    }
}

pub(super) fn replica_status(status: &At<'_>, errors: &mut Errors) {
    let counts = ["fullyLabeledReplicas", "readyReplicas", "availableReplicas"];
    errors.non_negative(&status.get("replicas"));
    for field in counts
        .into_iter()
        .chain(["observedGeneration", "terminatingReplicas"])
    {
        errors.non_negative(&status.get(field));
    }
    replica_counts(status, &counts, errors);
    not_above(
        status,
        "availableReplicas",
        "readyReplicas",
        "readyReplicas",
        errors,
    );
}

pub(super) fn collisions(new: &At<'_>, old: &At<'_>, errors: &mut Errors) {
    let at = new.dig(&["status", "collisionCount"]);
    let before = old.dig(&["status", "collisionCount"]);
    if before.is_set() && before.number() > at.number() {
        errors.invalid(&at, at.number(), "cannot be decremented");
    }
}
