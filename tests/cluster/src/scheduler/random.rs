//! Small random clusters and what happens in them, by seed: for what nobody thought of.

use fastrand::Rng;
use serde_json::{Map, Value, json};

use super::scenario::Told;

const ZONE: &str = "topology.kubernetes.io/zone";
const HOST: &str = "kubernetes.io/hostname";
const APPS: &[&str] = &["x", "y", "z"];
const CARD: &str = "example.com/card";
const DRIVER: &str = "csi.example.com";

/// So many stories follow each other under one configuration, because each needs a scheduler of its own.
const UNDER_ONE_SETUP: u64 = 25;

/// The story that a seed stands for.
pub fn story(seed: u64) -> Told {
    let mut teller = Teller {
        random: Rng::with_seed(seed),
        pods: Vec::new(),
        nodes: Vec::new(),
        claims: Vec::new(),
        device_claims: Vec::new(),
        named: 0,
    };
    let objects = teller.cluster();
    let steps = (0..teller.random.usize(3..8))
        .map(|_| teller.step())
        .collect();
    Told {
        objects,
        steps,
        config: config(seed / UNDER_ONE_SETUP),
    }
}

fn config(number: u64) -> Value {
    let arguments = |name: &str, args: Value| json!({"profiles": [{"pluginConfig": [{"name": name, "args": args}]}]});
    let strategy =
        |strategy: Value| arguments("NodeResourcesFit", json!({"scoringStrategy": strategy}));
    match number % 8 {
        1 => strategy(json!({"type": "MostAllocated",
            "resources": [{"name": "cpu", "weight": 3}, {"name": CARD, "weight": 2}]})),
        2 => strategy(json!({"type": "RequestedToCapacityRatio",
            "resources": [{"name": "cpu", "weight": 2}, {"name": "memory", "weight": 3}],
            "requestedToCapacityRatio": {"shape": [{"utilization": 0, "score": 1}, {"utilization": 37, "score": 9},
                {"utilization": 80, "score": 4}]}})),
        4 => arguments(
            "PodTopologySpread",
            json!({"defaultingType": "List", "defaultConstraints": [
                {"maxSkew": 1, "topologyKey": ZONE, "whenUnsatisfiable": "DoNotSchedule"},
                {"maxSkew": 2, "topologyKey": HOST, "whenUnsatisfiable": "ScheduleAnyway"}]}),
        ),
        5 => arguments("InterPodAffinity", json!({"hardPodAffinityWeight": 37})),
        7 => arguments(
            "NodeAffinity",
            json!({"addedAffinity": {"preferredDuringSchedulingIgnoredDuringExecution":
                [{"weight": 3, "preference": {"matchExpressions": [{"key": "pool", "operator": "In", "values": ["y"]}]}}]}}),
        ),
        _ => json!({}),
    }
}

struct Teller {
    random: Rng,
    pods: Vec<String>,
    nodes: Vec<String>,
    claims: Vec<String>,
    device_claims: Vec<String>,
    named: usize,
}

impl Teller {
    /// True in so many of a hundred cases.
    fn often(&mut self, percent: u8) -> bool {
        self.random.u8(0..100) < percent
    }

    fn of<T: Clone>(&mut self, choices: &[T]) -> T {
        choices[self.random.usize(0..choices.len())].clone()
    }

    fn name(&mut self, word: &str) -> String {
        self.named += 1;
        format!("{word}{}", self.named)
    }

    fn cluster(&mut self) -> Vec<Value> {
        let mut objects = vec![
            json!({"namespace": "other", "labels": {"team": "red"}}),
            json!({"class": "im", "provisioner": DRIVER}),
            json!({"class": "local", "wait": true}),
            json!({"class": "late", "wait": true, "provisioner": DRIVER}),
            json!({"deviceclass": "gpu", "cel": ["device.driver == \"gpu.example.com\""]}),
            json!({"service": "s", "selector": {"app": self.of(APPS)}}),
        ];
        for _ in 0..self.random.usize(2..6) {
            let node = self.node();
            let name = node["node"].as_str().unwrap_or_default().to_owned();
            objects.push(node);
            self.belongings(&name, &mut objects);
        }
        for _ in 0..self.random.usize(0..3) {
            self.claim(&mut objects);
        }
        for _ in 0..self.random.usize(0..3) {
            let name = self.name("dc");
            let mut claim = json!({"claim": name, "class": "gpu", "count": self.random.u8(1..3)});
            if self.often(30) {
                claim["cel"] = json!([format!(
                    "device.attributes[\"gpu.example.com\"].gen > {}",
                    self.random.u8(0..3)
                )]);
            }
            objects.push(claim);
            self.device_claims.push(name);
        }
        for _ in 0..self.random.usize(1..8) {
            let mut pod = self.pod(true);
            pod["on"] = json!(self.of(&self.nodes.clone()));
            pod["started"] = json!(self.named % 60);
            objects.push(pod);
        }
        if self.often(40) {
            let allowed = self.random.u8(0..3);
            objects
                .push(json!({"pdb": "d", "selector": {"app": self.of(APPS)}, "allowed": allowed}));
        }
        objects
    }

    fn node(&mut self) -> Value {
        let name = self.name("n");
        let milli = self.random.u32(10..80) * 100 + self.random.u32(0..9) * 10;
        let mut node = json!({"node": name, "cpu": format!("{milli}m"),
            "memory": format!("{}Mi", self.random.u32(1000..9000))});
        let mut labels = Map::new();
        if self.often(75) {
            node["zone"] = json!(self.of(&["a", "b", "c"]));
        }
        for (key, values) in [
            ("pool", ["x", "y"]),
            ("disk", ["ssd", "hdd"]),
            ("size", ["3", "12"]),
        ] {
            if self.often(60) {
                labels.insert(key.to_owned(), json!(self.of(&values)));
            }
        }
        node["labels"] = Value::Object(labels);
        if self.often(15) {
            node["pods"] = json!(self.random.u8(1..5));
        }
        if self.often(30) {
            node["taints"] = json!([self.taint()]);
        }
        if self.often(5) {
            node["unschedulable"] = json!(true);
        }
        if self.often(30) {
            node["images"] = json!({"r/i:1": self.random.u32(1..9) * 100_000_000});
        }
        if self.often(30) {
            node["resources"] = json!({CARD: self.random.u8(0..4), "ephemeral-storage": "10Gi"});
        }
        self.nodes.push(name);
        node
    }

    fn taint(&mut self) -> String {
        let key = self.of(&["k1", "k2"]);
        let value = self.of(&["", "=v", "=w"]);
        let effect = self.of(&[
            "NoSchedule",
            "NoExecute",
            "PreferNoSchedule",
            "PreferNoSchedule",
        ]);
        format!("{key}{value}:{effect}")
    }

    /// What a node has besides: devices, drivers, local volumes.
    fn belongings(&mut self, node: &str, objects: &mut Vec<Value>) {
        if self.often(30) {
            let devices: Vec<Value> = (0..self.random.u8(1..4))
                .map(|number| json!({"name": format!("d{number}"), "attributes": {"gen": {"int": number}}}))
                .collect();
            objects.push(json!({"slice": format!("s-{node}"), "node": node, "pool": node, "devices": devices}));
        }
        if self.often(30) {
            objects.push(json!({"csinode": node, "drivers": {DRIVER: self.random.u8(0..3)}}));
        }
        if self.often(30) {
            let size = format!("{}Gi", self.random.u8(1..5));
            objects.push(
                json!({"pv": format!("v-{node}"), "class": "local", "size": size, "nodes": [node]}),
            );
        }
    }

    fn claim(&mut self, objects: &mut Vec<Value>) {
        let name = self.name("c");
        match self.random.u8(0..10) {
            0..8 => {
                let volume = format!("v-{name}");
                let mut pv = json!({"pv": volume, "class": "im", "driver": DRIVER, "handle": volume, "bound": name,
                    "phase": "Bound"});
                if self.often(40) {
                    pv["zone"] = json!(self.of(&["a", "b", "a__c"]));
                } else if self.often(50) {
                    pv["nodes"] =
                        json!([self.of(&self.nodes.clone()), self.of(&self.nodes.clone())]);
                }
                objects.push(json!({"pvc": name, "class": "im", "volume": volume}));
                objects.push(pv);
            }
            8 => {
                let size = format!("{}Gi", self.random.u8(1..5));
                objects.push(json!({"pvc": name, "class": "local", "size": size}));
            }
            _ => objects.push(json!({"pvc": name, "class": "late"})),
        }
        self.claims.push(name);
    }

    /// With a few wishes of many kinds; those that are there already have simpler ones.
    fn pod(&mut self, placed: bool) -> Value {
        let name = self.name("p");
        self.pods.push(name.clone());
        let mut pod = json!({"pod": name});
        let app = self.of(APPS);
        pod["labels"] = json!({"app": app, "rev": self.of(&["1", "2"])});
        if self.often(85) {
            let most = if placed { 15 } else { 40 };
            pod["cpu"] = json!(format!("{}m", self.random.u32(1..most) * 100));
        }
        if self.often(60) {
            pod["memory"] = json!(format!("{}Mi", self.random.u32(1..30) * 100));
        }
        if self.often(if placed { 50 } else { 60 }) {
            pod["priority"] = json!(self.of(&[-1, 1, 5, 10, 20]));
        } else if !placed && self.often(10) {
            pod["never"] = json!(10);
        }
        if self.often(12) {
            pod["limits"] = json!({CARD: self.random.u8(1..3)});
        }
        if self.often(10) {
            pod["ports"] = json!([{"containerPort": 80, "hostPort": self.of(&[80, 81]),
                "protocol": self.of(&["TCP", "UDP"]), "hostIP": self.of(&["", "1.2.3.4", "0.0.0.0"])}]);
        }
        if self.often(20) {
            pod["image"] = json!("r/i:1");
        }
        if self.often(15) {
            let init = json!({"name": "s", "image": "i", "restartPolicy": "Always",
                "resources": {"requests": {"cpu": format!("{}m", self.random.u32(1..9) * 100)}}});
            let once = json!({"name": "o", "image": "i",
                "resources": {"requests": {"cpu": format!("{}m", self.random.u32(1..25) * 100)}}});
            let inits = self.of(&[json!([init, once]), json!([once, init]), json!([once])]);
            pod["spec"] = json!({"initContainers": inits});
        }
        let affinity = self.affinity(placed);
        if !affinity.is_empty() {
            pod["affinity"] = Value::Object(affinity);
        }
        if !placed {
            self.wishes(&mut pod);
        }
        pod
    }

    fn wishes(&mut self, pod: &mut Value) {
        if self.often(20) {
            pod["selector"] = json!({"pool": self.of(&["x", "y"])});
        }
        if self.often(30) {
            let key = self.of(&["k1", "k2"]);
            pod["tolerations"] = self.of(&[
                json!([{"operator": "Exists"}]),
                json!([{"key": key, "operator": "Exists"}]),
                json!([{"key": key, "operator": "Equal", "value": "v"}]),
                json!([{"key": key, "operator": "Exists", "effect": "NoSchedule"}]),
            ]);
        }
        if self.often(35) {
            let count = self.random.usize(1..3);
            let keys = self.of(&[[ZONE, HOST], [HOST, ZONE], [ZONE, "disk"], ["pool", HOST]]);
            let list: Vec<Value> = keys[..count]
                .iter()
                .map(|key| self.constraint(key))
                .collect();
            pod["spread"] = json!(list);
        }
        if !self.claims.is_empty() && self.often(25) {
            pod["pvcs"] = json!([self.of(&self.claims.clone())]);
        }
        if !self.device_claims.is_empty() && self.often(25) {
            pod["claims"] = json!([self.of(&self.device_claims.clone())]);
        }
    }

    fn constraint(&mut self, key: &str) -> Value {
        let hard = self.often(55);
        let action = if hard {
            "DoNotSchedule"
        } else {
            "ScheduleAnyway"
        };
        let mut constraint = json!({"maxSkew": self.random.u8(1..4), "topologyKey": key, "whenUnsatisfiable": action,
            "labelSelector": self.selector()});
        if hard && self.often(25) {
            constraint["minDomains"] = json!(self.random.u8(1..5));
        }
        for policy in ["nodeAffinityPolicy", "nodeTaintsPolicy"] {
            if self.often(30) {
                constraint[policy] = json!(self.of(&["Honor", "Ignore"]));
            }
        }
        if self.often(15) {
            constraint["labelSelector"] = json!({"matchLabels": {"app": self.of(APPS)}});
            constraint["matchLabelKeys"] = json!(["rev"]);
        }
        constraint
    }

    fn selector(&mut self) -> Value {
        match self.random.u8(0..10) {
            0 => {
                json!({"matchExpressions": [{"key": "app", "operator": "NotIn", "values": [self.of(APPS)]}]})
            }
            1 => {
                json!({"matchExpressions": [{"key": "app", "operator": "In", "values": [self.of(APPS), self.of(APPS)]}]})
            }
            2 => json!({"matchExpressions": [{"key": "rev", "operator": "Exists"}]}),
            _ => json!({"matchLabels": {"app": self.of(APPS)}}),
        }
    }

    fn affinity(&mut self, placed: bool) -> Map<String, Value> {
        let mut affinity = Map::new();
        let often = if placed { 12 } else { 18 };
        if !placed && self.often(25) {
            affinity.insert("nodeAffinity".to_owned(), self.node_affinity());
        }
        for (name, share) in [("podAffinity", often / 2), ("podAntiAffinity", often)] {
            let mut both = Map::new();
            if self.often(share) {
                let term = self.term();
                both.insert(
                    "requiredDuringSchedulingIgnoredDuringExecution".to_owned(),
                    json!([term]),
                );
            }
            if self.often(often) {
                let terms: Vec<Value> = (0..self.random.u8(1..3))
                    .map(|_| json!({"weight": self.random.u8(1..100), "podAffinityTerm": self.term()}))
                    .collect();
                both.insert(
                    "preferredDuringSchedulingIgnoredDuringExecution".to_owned(),
                    json!(terms),
                );
            }
            if !both.is_empty() {
                affinity.insert(name.to_owned(), Value::Object(both));
            }
        }
        affinity
    }

    fn term(&mut self) -> Value {
        let mut term = json!({"topologyKey": self.of(&[ZONE, HOST, HOST, "pool"]), "labelSelector": self.selector()});
        match self.random.u8(0..10) {
            0 => term["namespaces"] = json!(["other"]),
            1 => term["namespaceSelector"] = json!({}),
            2 => term["namespaceSelector"] = json!({"matchLabels": {"team": "red"}}),
            // A key that the selector names already is refused.
            number @ (3 | 4) => {
                let field = if number == 3 {
                    "matchLabelKeys"
                } else {
                    "mismatchLabelKeys"
                };
                term["labelSelector"] = json!({"matchLabels": {"app": self.of(APPS)}});
                term[field] = json!(["rev"]);
            }
            _ => {}
        }
        term
    }

    fn node_affinity(&mut self) -> Value {
        let requirement = |random: &mut Rng| match random.u8(0..6) {
            0 => json!({"key": "disk", "operator": "Exists"}),
            1 => json!({"key": "disk", "operator": "DoesNotExist"}),
            2 => json!({"key": "disk", "operator": "NotIn", "values": ["hdd"]}),
            3 => json!({"key": "size", "operator": "Gt", "values": ["5"]}),
            4 => json!({"key": "size", "operator": "Lt", "values": ["5"]}),
            _ => json!({"key": ZONE, "operator": "In", "values": ["a", "b"]}),
        };
        let mut affinity = json!({});
        if self.often(60) {
            let terms: Vec<Value> = (0..self.random.u8(1..3))
                .map(|_| json!({"matchExpressions": [requirement(&mut self.random)]}))
                .collect();
            affinity["requiredDuringSchedulingIgnoredDuringExecution"] =
                json!({"nodeSelectorTerms": terms});
        }
        if self.often(60) {
            let terms: Vec<Value> = (0..self.random.u8(1..3))
                .map(|_| {
                    let weight = self.random.u8(1..100);
                    json!({"weight": weight, "preference": {"matchExpressions": [requirement(&mut self.random)]}})
                })
                .collect();
            affinity["preferredDuringSchedulingIgnoredDuringExecution"] = json!(terms);
        }
        affinity
    }

    /// Mostly a pod; sometimes something changes that may wake those who wait.
    fn step(&mut self) -> Value {
        let node = self.of(&self.nodes.clone());
        match self.random.u8(0..20) {
            0 => {
                json!({"patch": format!("node/{node}"), "with": {"spec": {"taints": null, "unschedulable": null}}})
            }
            1 => json!({"patch": format!("node/{node}"), "with": {"metadata": {"labels":
                {"pool": self.of(&["x", "y"]), "disk": self.of(&["ssd", "hdd"])}}}}),
            2 => {
                json!({"status": format!("node/{node}"), "with": {"status": {"allocatable": {"cpu": "9"}}}})
            }
            3 => self.node(),
            4..7 if !self.pods.is_empty() => {
                let index = self.random.usize(0..self.pods.len());
                json!({"delete": format!("pod/{}", self.pods.swap_remove(index)), "maybe": true})
            }
            _ => self.pod(false),
        }
    }
}
