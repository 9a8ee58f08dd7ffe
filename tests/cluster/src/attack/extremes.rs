//! Sound objects with one to three values that are not: what is taken meets the scheduler, the manager and simulated nodes.

use fastrand::Rng;
use serde_json::json;

use super::class::{JSON, Shot};
use super::made_up::{extreme, object, object_of, pick, pointers};

/// Fields that the sound objects do not have, and that somebody computes with.
const FIELDS: [&str; 36] = [
    "/spec/terminationGracePeriodSeconds",
    "/spec/activeDeadlineSeconds",
    "/spec/priority",
    "/spec/overhead",
    "/spec/schedulingGates",
    "/spec/preemptionPolicy",
    "/spec/hostname",
    "/spec/tolerations/0/tolerationSeconds",
    "/spec/topologySpreadConstraints/0/maxSkew",
    "/spec/topologySpreadConstraints/0/minDomains",
    "/spec/affinity/podAntiAffinity/preferredDuringSchedulingIgnoredDuringExecution/0/weight",
    "/spec/containers/0/resources/requests/cpu",
    "/spec/containers/0/resources/requests/memory",
    "/spec/containers/0/resources/requests/ephemeral-storage",
    "/spec/containers/0/resources/requests/example.com~1x",
    "/spec/containers/0/resources/limits/cpu",
    "/spec/containers/0/ports/0/hostPort",
    "/spec/containers/0/readinessProbe/periodSeconds",
    "/spec/containers/0/readinessProbe/initialDelaySeconds",
    "/spec/replicas",
    "/spec/minReadySeconds",
    "/spec/progressDeadlineSeconds",
    "/spec/backoffLimit",
    "/spec/completions",
    "/spec/parallelism",
    "/spec/ttlSecondsAfterFinished",
    "/spec/schedule",
    "/spec/timeZone",
    "/spec/minReplicas",
    "/spec/maxReplicas",
    "/spec/maxUnavailable",
    "/spec/ports/0/nodePort",
    "/spec/resources/requests/storage",
    "/metadata/generation",
    "/metadata/deletionGracePeriodSeconds",
    "/metadata/creationTimestamp",
];

pub fn shot(random: &mut Rng, number: u64) -> Shot {
    match random.u8(..10) {
        // What is there goes, with a grace that is extreme.
        0 => {
            let (collection, _) = object(random, number);
            let options = json!({"gracePeriodSeconds": extreme(random), "propagationPolicy": pick(random, &["Orphan", "Foreground", "Background", "x"])});
            let path = format!("{collection}/x-{}", random.u64(..=number));
            Shot::new("DELETE", path, JSON, options.to_string().into_bytes())
        }
        1 => {
            let seconds = extreme(random);
            let account = pick(random, &["editor", "default"]);
            let path = format!("/api/v1/namespaces/$ns/serviceaccounts/{account}/token");
            let body = json!({"spec": {"expirationSeconds": seconds}});
            Shot::new("POST", path, JSON, body.to_string().into_bytes())
        }
        2 => {
            let body = json!({"spec": {"replicas": extreme(random)}});
            let path = format!(
                "/apis/apps/v1/namespaces/$ns/deployments/x-{}/scale",
                random.u64(..=number)
            );
            Shot::new("PUT", path, JSON, body.to_string().into_bytes())
        }
        // Pods are what most programs compute with.
        3..6 => changed(random, object_of("v1/pods", number)),
        _ => {
            let sound = object(random, number);
            changed(random, sound)
        }
    }
}

fn changed(random: &mut Rng, (path, mut object): (String, serde_json::Value)) -> Shot {
    let mut places = pointers(&object);
    places.extend(FIELDS.map(str::to_owned));
    // One at a time is taken more often than many.
    for _ in 0..random.usize(1..6).saturating_sub(2).max(1) {
        let place = &places[random.usize(..places.len())];
        let value = extreme(random);
        set(&mut object, place, value);
    }
    Shot::new("POST", path, JSON, object.to_string().into_bytes())
}

/// Sets what is there, or the last part of a path whose parent is there.
fn set(object: &mut serde_json::Value, pointer: &str, value: serde_json::Value) {
    if let Some(place) = object.pointer_mut(pointer) {
        *place = value;
        return;
    }
    let Some((parent, key)) = pointer.rsplit_once('/') else {
        return;
    };
    if let Some(parent) = object
        .pointer_mut(parent)
        .and_then(|parent| parent.as_object_mut())
    {
        parent.insert(key.replace("~1", "/"), value);
    }
}
