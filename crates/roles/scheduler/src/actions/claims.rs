//! What is written about volumes, their claims, and claims for devices.

use plimsoll_sched::action::PodRef;
use plimsoll_sched::model::encode;
use plimsoll_sched::plugins::dynamic_resources::extended::Mapping;
use serde_json::{Value, json};

use super::request::{Refused, Verb, ask, ask_json};

const BOUND_BY_CONTROLLER: &str = "pv.kubernetes.io/bound-by-controller";
const SELECTED_NODE: &str = "volume.kubernetes.io/selected-node";
const DELETE_PROTECTION: &str = "resource.kubernetes.io/delete-protection";
/// Somebody else writes the same claim.
const TRIES: usize = 5;

fn conflict(message: String) -> Refused {
    Refused::Status {
        code: 409,
        reason: "Conflict".to_owned(),
        message,
    }
}

/// Gives a volume to a claim, if it is still free.
pub async fn bind_volume(
    client: &kube::Client,
    volume: &str,
    claim: (&str, &str, &str),
) -> Result<(), Refused> {
    let path = format!("/api/v1/persistentvolumes/{volume}");
    let mut object = ask_json(client, Verb::Get, &path, None).await?;
    if !give(&mut object, claim) {
        return Err(conflict(format!(
            "Operation cannot be fulfilled on persistentvolumes \"{volume}\": the object has been modified; please \
             apply your changes to the latest version and try again"
        )));
    }
    ask_json(client, Verb::Put, &path, Some(&object)).await?;
    Ok(())
}

/// Writes the claim into the volume. False: it is another's.
fn give(volume: &mut Value, (namespace, name, uid): (&str, &str, &str)) -> bool {
    let kept = &volume["spec"]["claimRef"];
    let is_kept = !kept.is_null();
    if is_kept
        && (kept["namespace"] != namespace
            || kept["name"] != name
            || kept["uid"]
                .as_str()
                .is_some_and(|known| !known.is_empty() && known != uid))
    {
        return false;
    }
    volume["spec"]["claimRef"] = json!({
        "apiVersion": "v1",
        "kind": "PersistentVolumeClaim",
        "namespace": namespace,
        "name": name,
        "uid": uid,
    });
    // A volume that its owner keeps for the claim stays the owner's when the claim is gone.
    if !is_kept {
        volume["metadata"]["annotations"][BOUND_BY_CONTROLLER] = "yes".into();
    }
    true
}

pub async fn select_node(
    client: &kube::Client,
    claim: (&str, &str, &str),
    node: &str,
) -> Result<(), Refused> {
    let (namespace, name, resource_version) = claim;
    let path = format!("/api/v1/namespaces/{namespace}/persistentvolumeclaims/{name}");
    let patch = json!({"metadata": {
        "resourceVersion": resource_version,
        "annotations": {SELECTED_NODE: node},
    }});
    ask_json(client, Verb::MergePatch, &path, Some(&patch)).await?;
    Ok(())
}

fn claim_path(namespace: &str, name: &str) -> String {
    format!("/apis/resource.k8s.io/v1/namespaces/{namespace}/resourceclaims/{name}")
}

#[derive(Debug, Clone)]
pub struct Reservation {
    pub namespace: Box<str>,
    pub claim: Box<str>,
    pub uid: Box<str>,
    /// What it gets, if it has nothing yet.
    pub allocation: Option<Value>,
    pub pod: PodRef,
}

/// Gives a claim its devices, and the pod the claim.
pub async fn reserve(client: &kube::Client, wish: &Reservation) -> Result<(), Refused> {
    let path = claim_path(&wish.namespace, &wish.claim);
    let mut tried = 0;
    loop {
        match try_reserve(client, &path, wish).await {
            Err(refused) if refused.is_conflict() && tried < TRIES => tried += 1,
            outcome => return outcome,
        }
    }
}

async fn try_reserve(client: &kube::Client, path: &str, wish: &Reservation) -> Result<(), Refused> {
    let mut claim = ask_json(client, Verb::Get, path, None).await?;
    if claim["metadata"]["uid"] != *wish.uid {
        return Err(Refused::Status {
            code: 404,
            reason: "NotFound".to_owned(),
            message: format!("resourceclaims.resource.k8s.io {:?} not found", wish.claim),
        });
    }
    if !claim["metadata"]["deletionTimestamp"].is_null() {
        return Err(Refused::Unreachable(format!(
            "claim {} got deleted in the meantime",
            wish.claim
        )));
    }
    let has_devices = !claim["status"]["allocation"].is_null();
    if let Some(given) = wish.allocation.as_ref().filter(|_| !has_devices) {
        if !has_protection(&claim) {
            let finalizers = &mut claim["metadata"]["finalizers"];
            match finalizers.as_array_mut() {
                Some(list) => list.push(DELETE_PROTECTION.into()),
                None => *finalizers = json!([DELETE_PROTECTION]),
            }
            claim = ask_json(client, Verb::Put, path, Some(&claim)).await?;
        }
        let mut given = given.clone();
        let config = configuration(client, &claim, &given).await?;
        if !config.is_empty() {
            given["devices"]["config"] = config.into();
        }
        claim["status"]["allocation"] = given;
    }
    reserve_for(&mut claim, &wish.pod);
    let status = format!("{path}/status");
    ask_json(client, Verb::Put, &status, Some(&claim)).await?;
    Ok(())
}

fn has_protection(claim: &Value) -> bool {
    let finalizers = claim["metadata"]["finalizers"].as_array();
    finalizers.is_some_and(|list| list.iter().any(|one| one == DELETE_PROTECTION))
}

fn reserve_for(claim: &mut Value, pod: &PodRef) {
    let consumer = encode::consumer(pod);
    let reserved = &mut claim["status"]["reservedFor"];
    match reserved.as_array_mut() {
        Some(list) => {
            if !list.iter().any(|one| one["uid"] == *pod.uid) {
                list.push(consumer);
            }
        }
        None => *reserved = json!([consumer]),
    }
}

/// What drivers are told about the devices: by their classes, then by the claim itself.
async fn configuration(
    client: &kube::Client,
    claim: &Value,
    given: &Value,
) -> Result<Vec<Value>, Refused> {
    let mut config = Vec::new();
    let requests = claim["spec"]["devices"]["requests"].as_array();
    for request in requests.into_iter().flatten() {
        let Some(class) = class_of(request, given) else {
            continue;
        };
        let path = format!("/apis/resource.k8s.io/v1/deviceclasses/{class}");
        let class = ask_json(client, Verb::Get, &path, None).await?;
        for one in class["spec"]["config"].as_array().into_iter().flatten() {
            let mut one = one.clone();
            one["source"] = "FromClass".into();
            one["requests"] = json!([request["name"]]);
            config.push(one);
        }
    }
    let own = claim["spec"]["devices"]["config"].as_array();
    for one in own.into_iter().flatten() {
        let mut one = one.clone();
        one["source"] = "FromClaim".into();
        config.push(one);
    }
    Ok(config)
}

/// The class of a request, or of that of its alternatives which was taken.
fn class_of<'a>(request: &'a Value, given: &Value) -> Option<&'a str> {
    if let Some(class) = request["exactly"]["deviceClassName"].as_str() {
        return Some(class);
    }
    let results = given["devices"]["results"].as_array()?;
    let name = request["name"].as_str()?;
    request["firstAvailable"].as_array()?.iter().find(|one| {
        let full = format!("{name}/{}", one["name"].as_str().unwrap_or_default());
        results.iter().any(|result| result["request"] == *full)
    })?["deviceClassName"]
        .as_str()
}

/// Takes a claim's devices away, if nobody uses it.
pub async fn deallocate(
    client: &kube::Client,
    namespace: &str,
    name: &str,
    uid: &str,
) -> Result<(), Refused> {
    let path = claim_path(namespace, name);
    let mut claim = ask_json(client, Verb::Get, &path, None).await?;
    if claim["metadata"]["uid"] != *uid {
        return Ok(());
    }
    if let Some(status) = claim["status"].as_object_mut() {
        status.remove("allocation");
        status.remove("reservedFor");
    }
    let status = format!("{path}/status");
    let body = bytes::Bytes::from(claim.to_string());
    ask(client, Verb::Put, &status, body, false).await?;
    Ok(())
}

/// A claim that is made for a pod's extended resources.
#[derive(Debug)]
pub struct NewClaim {
    pub pod: PodRef,
    pub claim: Value,
    pub allocation: Value,
    pub mappings: Vec<Mapping>,
}

/// Makes the claim, gives it its devices, and tells the pod its name.
pub async fn create(client: &kube::Client, wish: &NewClaim) -> Result<(), Refused> {
    let path = format!(
        "/apis/resource.k8s.io/v1/namespaces/{}/resourceclaims",
        wish.pod.namespace
    );
    let made = ask_json(client, Verb::Post, &path, Some(&wish.claim)).await?;
    let text = |field: &str| made["metadata"][field].as_str().unwrap_or_default();
    let reservation = Reservation {
        namespace: wish.pod.namespace.clone(),
        claim: text("name").into(),
        uid: text("uid").into(),
        allocation: Some(wish.allocation.clone()),
        pod: wish.pod.clone(),
    };
    reserve(client, &reservation).await?;
    let told = encode::extended_claim_status(text("name"), &wish.mappings);
    let patch = json!({
        "metadata": {"uid": &*wish.pod.uid},
        "status": {"extendedResourceClaimStatus": told},
    });
    super::pods::write_status(client, &wish.pod, &patch).await
}

/// Removes a claim that was made for extended resources; its protection would keep it.
pub async fn delete(
    client: &kube::Client,
    namespace: &str,
    name: &str,
    uid: &str,
) -> Result<(), Refused> {
    let path = claim_path(namespace, name);
    let mut claim = ask_json(client, Verb::Get, &path, None).await?;
    if claim["metadata"]["uid"] != *uid {
        return Ok(());
    }
    if has_protection(&claim) {
        let finalizers = claim["metadata"]["finalizers"].as_array_mut();
        if let Some(list) = finalizers {
            list.retain(|one| one != DELETE_PROTECTION);
        }
        ask_json(client, Verb::Put, &path, Some(&claim)).await?;
    }
    let options =
        json!({"apiVersion": "v1", "kind": "DeleteOptions", "preconditions": {"uid": uid}});
    let body = bytes::Bytes::from(options.to_string());
    ask(client, Verb::Delete, &path, body, false).await?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn volumes_are_given_once() {
        let mut free = json!({"metadata": {"name": "v"}, "spec": {}});
        assert!(give(&mut free, ("ns", "c", "u")));
        assert_eq!(free["spec"]["claimRef"]["uid"], "u");
        assert_eq!(free["metadata"]["annotations"][BOUND_BY_CONTROLLER], "yes");
        assert!(give(&mut free, ("ns", "c", "u")));
        assert!(!give(&mut free, ("ns", "c", "other")));
        let mut kept =
            json!({"metadata": {}, "spec": {"claimRef": {"namespace": "ns", "name": "c"}}});
        assert!(give(&mut kept, ("ns", "c", "u")));
        assert!(kept["metadata"]["annotations"].is_null());
    }

    #[test]
    fn a_pod_is_entered_once() {
        let pod = PodRef {
            namespace: "ns".into(),
            name: "p".into(),
            uid: "u".into(),
            resource_version: "1".into(),
        };
        let mut claim = json!({"status": {}});
        reserve_for(&mut claim, &pod);
        reserve_for(&mut claim, &pod);
        let expected = json!([{"resource": "pods", "name": "p", "uid": "u"}]);
        assert_eq!(claim["status"]["reservedFor"], expected);
    }
}
