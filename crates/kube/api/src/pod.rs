//! What a pod is and asks for, as far as its node and the manager look at it; requests are added up as the scheduler
//! does it.

use std::collections::BTreeMap;

use serde::{Deserialize, Deserializer};

use crate::names;
use crate::priority::{KubeQos, PriorityClass, QosClass};
use crate::quantity::Quantity;

pub type Amounts = BTreeMap<Box<str>, Quantity>;

/// Requests and limits of a container or a pod.
#[derive(Debug, Clone, PartialEq, Default, Deserialize)]
#[serde(default)]
pub struct Resources {
    #[serde(deserialize_with = "amounts")]
    pub requests: Amounts,
    #[serde(deserialize_with = "amounts")]
    pub limits: Amounts,
}

/// A pod's specification, without what nobody here looks at.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Spec {
    pub node_name: Box<str>,
    pub priority: Option<i32>,
    pub containers: Vec<Container>,
    pub init_containers: Vec<Container>,
    /// Names of the volume claims that it mounts.
    #[serde(rename = "volumes", deserialize_with = "claims")]
    pub claims: Vec<Box<str>>,
    #[serde(deserialize_with = "amounts")]
    pub overhead: Amounts,
    /// Of the pod as a whole.
    pub resources: Option<Resources>,
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Container {
    pub name: Box<str>,
    pub resources: Resources,
    pub restart_policy: Option<Box<str>>,
}

impl Container {
    /// An init container that goes on running.
    pub fn stays(&self) -> bool {
        self.restart_policy.as_deref() == Some("Always")
    }
}

impl Spec {
    pub fn requests(&self) -> Amounts {
        self.total(|resources| &resources.requests)
    }

    pub fn limits(&self) -> Amounts {
        self.total(|resources| &resources.limits)
    }

    fn total(&self, of: fn(&Resources) -> &Amounts) -> Amounts {
        let starting = self.init_containers.iter().map(|one| Part {
            amounts: of(&one.resources),
            stays: one.stays(),
        });
        let running = self.containers.iter().map(|one| of(&one.resources));
        let nothing = Amounts::new();
        let whole = self.resources.as_ref().map_or(&nothing, of);
        total(running, starting, whole, &self.overhead)
    }
}

fn claims<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Vec<Box<str>>, D::Error> {
    #[derive(Deserialize)]
    #[serde(rename_all = "camelCase")]
    struct Volume {
        #[serde(default)]
        persistent_volume_claim: Option<Claim>,
    }
    #[derive(Deserialize)]
    #[serde(rename_all = "camelCase")]
    struct Claim {
        #[serde(default)]
        claim_name: Box<str>,
    }
    let volumes = Option::<Vec<Volume>>::deserialize(deserializer)?;
    let claims = volumes.into_iter().flatten();
    let claims = claims.filter_map(|volume| volume.persistent_volume_claim);
    Ok(claims.map(|claim| claim.claim_name).collect())
}

/// How important a pod is, and how it is treated: by what it says, and by nothing else.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Classes {
    pub priority: PriorityClass,
    pub qos: QosClass,
    pub kube_qos: KubeQos,
}

impl Classes {
    /// `kube_qos` as the pod's status spells it.
    pub fn of(
        labels: Option<&BTreeMap<String, String>>,
        priority: Option<i32>,
        kube_qos: Option<&str>,
    ) -> Self {
        let label = |name: &str| labels?.get(name).map(String::as_str);
        Self {
            priority: PriorityClass::of_pod(label(names::LABEL_PRIORITY_CLASS), priority),
            qos: QosClass::of_label(label(names::LABEL_QOS)),
            kube_qos: kube_qos
                .and_then(KubeQos::named)
                .unwrap_or(KubeQos::BestEffort),
        }
    }

    /// With what a pod without one is treated as.
    pub fn effective_qos(&self) -> QosClass {
        self.qos.or_by_kube(self.kube_qos)
    }

    /// With what a pod without one is treated as.
    pub fn effective_priority(&self) -> PriorityClass {
        self.priority.or_by_qos(self.effective_qos())
    }
}

/// A resource list. Amounts that are none are left out: whoever wrote them has been told by the API server.
pub fn amounts<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Amounts, D::Error> {
    #[derive(Deserialize)]
    #[serde(untagged)]
    enum Amount {
        Text(String),
        Number(serde_json::Number),
        Other(serde::de::IgnoredAny),
    }
    let given = Option::<BTreeMap<Box<str>, Amount>>::deserialize(deserializer)?;
    let parsed = given.unwrap_or_default().into_iter();
    let parsed = parsed.filter_map(|(name, amount)| {
        let text = match amount {
            Amount::Text(text) => text,
            Amount::Number(number) => number.to_string(),
            Amount::Other(_) => return None,
        };
        Some((name, text.parse().ok()?))
    });
    Ok(parsed.collect())
}

/// One of a pod's containers.
struct Part<'a> {
    amounts: &'a Amounts,
    /// An init container that goes on running beside the others.
    stays: bool,
}

/// What a pod keeps while it runs, or needs to start, whichever is more; amounts of the pod as a whole, where it names
/// them, come before those of its containers.
fn total<'a>(
    running: impl IntoIterator<Item = &'a Amounts>,
    starting: impl IntoIterator<Item = Part<'a>>,
    whole: &Amounts,
    overhead: &Amounts,
) -> Amounts {
    let mut kept = Amounts::new();
    for amounts in running {
        add(&mut kept, amounts);
    }
    let mut needed = Amounts::new();
    let mut beside = Amounts::new();
    for part in starting {
        // One that goes on running is there when the next one starts.
        if part.stays {
            add(&mut beside, part.amounts);
            raise(&mut needed, &beside);
        } else {
            let mut then = beside.clone();
            add(&mut then, part.amounts);
            raise(&mut needed, &then);
        }
    }
    add(&mut kept, &beside);
    raise(&mut kept, &needed);
    kept.extend(
        whole
            .iter()
            .map(|(name, amount)| (name.clone(), amount.clone())),
    );
    add(&mut kept, overhead);
    kept
}

fn add(sum: &mut Amounts, amounts: &Amounts) {
    for (name, amount) in amounts {
        match sum.get_mut(name) {
            Some(sum) => *sum = &*sum + amount,
            None => drop(sum.insert(name.clone(), amount.clone())),
        }
    }
}

fn raise(most: &mut Amounts, amounts: &Amounts) {
    for (name, amount) in amounts {
        match most.get_mut(name) {
            Some(most) if *most >= *amount => {}
            Some(most) => *most = amount.clone(),
            None => drop(most.insert(name.clone(), amount.clone())),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn list(value: serde_json::Value) -> Amounts {
        let resources: Resources = serde_json::from_value(json!({"requests": value})).unwrap();
        resources.requests
    }

    fn container(cpu: &str, memory: &str) -> serde_json::Value {
        json!({"resources": {"requests": {"cpu": cpu, "memory": memory}}})
    }

    #[test]
    fn what_starts_and_what_stays() {
        let mut sidecar = container("200m", "20");
        sidecar["restartPolicy"] = "Always".into();
        let spec = json!({
            "containers": [container("1", "100"), container("500m", "50")],
            "initContainers": [container("100m", "10"), sidecar, container("3", "30")],
            "overhead": {"cpu": "10m", "memory": "1"},
        });
        let spec: Spec = serde_json::from_value(spec).unwrap();
        let found = spec.requests();
        // CPU: the last init container beside the one that stays; memory: the containers beside it.
        assert_eq!((found["cpu"].milli(), found["memory"].value()), (3210, 171));
        assert_eq!(spec.limits()["cpu"].milli(), 10);
    }

    #[test]
    fn the_pod_as_a_whole_comes_first() {
        let spec = json!({
            "containers": [container("1", "100")],
            "resources": {"requests": {"cpu": "5"}},
            "volumes": [{"name": "d", "persistentVolumeClaim": {"claimName": "data"}}, {"emptyDir": {}}],
        });
        let spec: Spec = serde_json::from_value(spec).unwrap();
        let found = spec.requests();
        assert_eq!((found["cpu"].milli(), found["memory"].value()), (5000, 100));
        assert_eq!(spec.claims, ["data".into()]);
    }

    #[test]
    fn classes_by_label_priority_and_default() {
        let classes = Classes::of(None, None, Some("Burstable"));
        assert_eq!(classes.priority, PriorityClass::None);
        assert_eq!(classes.effective_priority(), PriorityClass::Prod);
        assert_eq!(classes.effective_qos(), QosClass::Ls);
        let labels = [("koordinator.sh/qosClass".to_owned(), "BE".to_owned())].into();
        let classes = Classes::of(Some(&labels), Some(5500), None);
        assert_eq!(classes.priority, PriorityClass::Batch);
        assert_eq!(classes.effective_qos(), QosClass::Be);
    }

    #[test]
    fn numbers_and_nonsense_in_lists() {
        let found = list(json!({"cpu": 2, "memory": "much", "pods": null, "x/y": "3"}));
        let names: Vec<&str> = found.keys().map(|name| &**name).collect();
        assert_eq!(names, ["cpu", "x/y"]);
        let nothing: Resources = serde_json::from_value(json!({"requests": null})).unwrap();
        assert!(nothing.requests.is_empty());
    }
}
