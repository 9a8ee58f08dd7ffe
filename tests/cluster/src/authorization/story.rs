//! What happens, by seed: objects come, change and go, and questions are asked in between.

use anyhow::Result;
use fastrand::Rng;
use serde_json::{Value, json};

use super::sides::{Identity, Pair, Question};

const RBAC: &str = "/apis/rbac.authorization.k8s.io/v1";
const API_GROUP: &str = "rbac.authorization.k8s.io";
const ROUNDS: usize = 12;
/// After each change.
const QUESTIONS: usize = 14;
/// Labels by which roles are gathered. Who gathers by one carries only later ones, so nobody gathers in a circle.
const LABELS: [&str; 3] = ["cases/first", "cases/second", "cases/third"];

const VERBS: &[&str] = &[
    "get",
    "get",
    "list",
    "watch",
    "create",
    "create",
    "update",
    "patch",
    "delete",
    "deletecollection",
    "*",
    "*",
    "*",
    "escalate",
    "bind",
    "impersonate",
    "impersonate:user-info",
    "impersonate-on:user-info:get",
    "impersonate-on:user-info:create",
];
const GROUPS: &[&str] = &[
    "",
    "",
    "",
    "apps",
    API_GROUP,
    "coordination.k8s.io",
    "authentication.k8s.io",
    "*",
    "*",
];
const RESOURCES: &[&str] = &[
    "configmaps",
    "configmaps",
    "secrets",
    "pods",
    "pods/log",
    "pods/*",
    "*/log",
    "*/scale",
    "leases",
    "deployments",
    "deployments/scale",
    "roles",
    "rolebindings",
    "clusterroles",
    "users",
    "groups",
    "uids",
    "userextras/scopes",
    "serviceaccounts",
    "serviceaccounts/token",
    "*",
    "*",
    "*",
];
const URLS: &[&str] = &["/metrics", "/logs", "/logs/*", "/lo*", "/apis/*", "*", "/x"];
const NAMES: &[&str] = &["x", "y", "u0", "g0", "s0"];

pub struct Story {
    random: Rng,
    /// What belongs to no namespace begins so.
    prefix: String,
    namespaces: Vec<String>,
    /// To be told apart by the real server's caches.
    round: u64,
    asked: usize,
    /// How often the answer was yes.
    allowed: usize,
    differences: Vec<String>,
    /// What was done, to be told with a difference.
    history: Vec<String>,
}

impl Story {
    pub fn new(seed: u64) -> Self {
        let prefix = format!("z{seed}");
        Self {
            random: Rng::with_seed(seed),
            namespaces: vec![format!("{prefix}-a"), format!("{prefix}-b")],
            prefix,
            round: seed.wrapping_mul(1000),
            asked: 0,
            allowed: 0,
            differences: Vec::new(),
            history: Vec::new(),
        }
    }

    /// How many answers were compared, and how many of them were a yes.
    pub fn asked(&self) -> (usize, usize) {
        (self.asked, self.allowed)
    }

    /// Says where the two differ.
    pub fn play(&mut self, pair: &Pair<'_>) -> Result<Vec<String>> {
        for namespace in self.namespaces.clone() {
            self.change(
                pair,
                "POST /api/v1/namespaces",
                json!({"metadata": {"name": namespace}}),
            )?;
        }
        // So that there is something to ask about.
        for _ in 0..14 {
            self.grow(pair)?;
        }
        for _ in 0..ROUNDS {
            self.happen(pair)?;
            self.settle(pair)?;
            for _ in 0..QUESTIONS {
                self.question(pair)?;
            }
            if !self.differences.is_empty() {
                let last = self.history.iter().rev().take(40).rev();
                let last: Vec<String> = last.map(|line| format!("  {line}")).collect();
                self.differences
                    .push(format!("what had happened:\n{}", last.join("\n")));
                break;
            }
        }
        self.account(pair)?;
        self.clean_up(pair)?;
        Ok(std::mem::take(&mut self.differences))
    }

    fn settle(&mut self, pair: &Pair<'_>) -> Result<()> {
        for number in 0..LABELS.len() - 1 {
            pair.until_rules_agree(&format!("{}-m{number}", self.prefix))?;
        }
        self.round += 1;
        pair.settle(self.round)
    }

    fn often(&mut self, percent: u8) -> bool {
        self.random.u8(..100) < percent
    }

    fn of<T: Clone>(&mut self, choices: &[T]) -> T {
        choices[self.random.usize(..choices.len())].clone()
    }

    fn some(&mut self, choices: &[&str], most: usize) -> Vec<String> {
        let count = self.random.usize(1..=most);
        (0..count).map(|_| self.of(choices).to_owned()).collect()
    }

    fn namespace(&mut self) -> String {
        self.of(&self.namespaces.clone())
    }

    fn rules(&mut self, of_cluster: bool) -> Value {
        let rules: Vec<Value> = (0..self.random.usize(1..3))
            .map(|_| {
                if of_cluster && self.often(15) {
                    return json!({"verbs": self.some(&["get", "post", "*"], 2), "nonResourceURLs": self.some(URLS, 2)});
                }
                let mut rule = json!({
                    "verbs": self.some(VERBS, 4), "apiGroups": self.some(GROUPS, 3),
                    "resources": self.some(RESOURCES, 5),
                });
                if self.often(25) {
                    rule["resourceNames"] = json!(self.some(NAMES, 2));
                }
                rule
            })
            .collect();
        json!(rules)
    }

    fn role(&mut self, namespace: &str) -> (String, Value) {
        let name = format!("r{}", self.random.u8(..3));
        let role = json!({"metadata": {"name": name}, "rules": self.rules(false)});
        (format!("{RBAC}/namespaces/{namespace}/roles/{name}"), role)
    }

    fn cluster_role(&mut self) -> (String, Value) {
        let gathers = self.often(25);
        let number = self.random.usize(..LABELS.len() - 1);
        let name = if gathers {
            format!("{}-m{number}", self.prefix)
        } else {
            format!("{}-c{}", self.prefix, self.random.u8(..4))
        };
        let mut role = json!({"metadata": {"name": name, "labels": {}}, "rules": self.rules(true)});
        let from = if gathers { number + 1 } else { 0 };
        for label in &LABELS[from..] {
            if self.often(40) {
                role["metadata"]["labels"][*label] = self.prefix.as_str().into();
            }
        }
        if gathers {
            // What somebody else has written stays in a real one until there is something to gather.
            role["rules"] = json!([]);
            let label = LABELS[number];
            let selector = json!({"matchLabels": {label: self.prefix}});
            role["aggregationRule"] = json!({"clusterRoleSelectors": [selector]});
        }
        (format!("{RBAC}/clusterroles/{name}"), role)
    }

    fn subject(&mut self, namespace: &str) -> Value {
        match self.random.u8(..4) {
            0 => json!({"apiGroup": API_GROUP, "kind": "Group", "name": self.group()}),
            1 => {
                let namespace = if self.often(70) {
                    namespace.to_owned()
                } else {
                    self.namespace()
                };
                json!({"kind": "ServiceAccount", "name": format!("s{}", self.random.u8(..2)), "namespace": namespace})
            }
            _ => json!({"apiGroup": API_GROUP, "kind": "User", "name": self.user()}),
        }
    }

    fn user(&mut self) -> String {
        // The same names in the next story would be others'.
        format!("{}-u{}", self.prefix, self.random.u8(..3))
    }

    fn group(&mut self) -> String {
        match self.random.u8(..8) {
            0 => "system:authenticated".to_owned(),
            1 => format!("system:serviceaccounts:{}", self.namespace()),
            number => format!("{}-g{}", self.prefix, number % 2),
        }
    }

    fn role_name(&mut self) -> Value {
        let (kind, name) = match self.random.u8(..8) {
            0..3 => ("Role", format!("r{}", self.random.u8(..3))),
            3 => (
                "ClusterRole",
                self.of(&["view", "edit", "admin", "system:basic-user"])
                    .to_owned(),
            ),
            4 | 5 => (
                "ClusterRole",
                format!("{}-m{}", self.prefix, self.random.usize(..LABELS.len() - 1)),
            ),
            _ => (
                "ClusterRole",
                format!("{}-c{}", self.prefix, self.random.u8(..4)),
            ),
        };
        json!({"apiGroup": API_GROUP, "kind": kind, "name": name})
    }

    fn binding(&mut self, namespace: &str) -> Value {
        let subjects: Vec<Value> = (0..self.random.usize(2..5))
            .map(|_| self.subject(namespace))
            .collect();
        json!({
            "metadata": {"name": format!("b{}", self.random.u8(..4))},
            "roleRef": self.role_name(), "subjects": subjects,
        })
    }

    fn cluster_binding(&mut self) -> Value {
        let namespace = self.namespace();
        let mut binding = self.binding(&namespace);
        binding["metadata"]["name"] = format!("{}-b{}", self.prefix, self.random.u8(..2)).into();
        if binding["roleRef"]["kind"] == "Role" {
            binding["roleRef"]["kind"] = "ClusterRole".into();
            binding["roleRef"]["name"] = format!("{}-c0", self.prefix).into();
        }
        // Everybody's rights would be everybody's in the next story.
        if let Some(subjects) = binding["subjects"].as_array_mut() {
            for subject in subjects {
                if subject["name"] == "system:authenticated" {
                    subject["name"] = format!("{}-g0", self.prefix).into();
                }
            }
        }
        binding
    }

    /// A role or a binding more, or another in its place.
    fn grow(&mut self, pair: &Pair<'_>) -> Result<()> {
        let namespace = self.namespace();
        match self.random.u8(..5) {
            0 => {
                let (path, role) = self.role(&namespace);
                self.change(pair, &format!("PUT {path}"), role)
            }
            1 | 2 => {
                let (path, role) = self.cluster_role();
                self.change(pair, &format!("PUT {path}"), role)
            }
            3 => {
                let binding = self.cluster_binding();
                self.replace(pair, &format!("{RBAC}/clusterrolebindings"), binding)
            }
            _ => {
                let binding = self.binding(&namespace);
                self.replace(
                    pair,
                    &format!("{RBAC}/namespaces/{namespace}/rolebindings"),
                    binding,
                )
            }
        }
    }

    /// What a binding refers to cannot be changed.
    fn replace(&mut self, pair: &Pair<'_>, collection: &str, object: Value) -> Result<()> {
        let name = object["metadata"]["name"].as_str().unwrap_or_default();
        let what = format!("DELETE {collection}/{name}");
        self.change(pair, &what, Value::Null)?;
        self.change(pair, &format!("POST {collection}"), object)
    }

    fn happen(&mut self, pair: &Pair<'_>) -> Result<()> {
        let namespace = self.namespace();
        match self.random.u8(..20) {
            0 => self.drop_namespace(pair, &namespace),
            1 | 2 => self.drop_owner(pair, &namespace),
            3..6 => {
                let name = format!("b{}", self.random.u8(..4));
                let what = format!("DELETE {RBAC}/namespaces/{namespace}/rolebindings/{name}");
                self.change(pair, &what, Value::Null)
            }
            6 => {
                let name = format!("r{}", self.random.u8(..3));
                let what = format!("DELETE {RBAC}/namespaces/{namespace}/roles/{name}");
                self.change(pair, &what, Value::Null)
            }
            7..9 => {
                let name = format!("{}-c{}", self.prefix, self.random.u8(..4));
                self.change(
                    pair,
                    &format!("DELETE {RBAC}/clusterroles/{name}"),
                    Value::Null,
                )
            }
            9..12 => {
                let name = format!("{}-c{}", self.prefix, self.random.u8(..4));
                let label = self.of(&LABELS);
                let value = self.of(&[json!(self.prefix), json!(null)]);
                let change = json!({"metadata": {"labels": {label: value}}});
                self.change(pair, &format!("PATCH {RBAC}/clusterroles/{name}"), change)
            }
            12 => {
                let what = format!("DELETE {RBAC}/namespaces/{namespace}/rolebindings");
                self.change(pair, &what, Value::Null)
            }
            _ => self.grow(pair),
        }
    }

    /// The namespace goes, by whoever empties it, and is made again.
    fn drop_namespace(&mut self, pair: &Pair<'_>, namespace: &str) -> Result<()> {
        let path = format!("/api/v1/namespaces/{namespace}");
        self.change(pair, &format!("DELETE {path}"), Value::Null)?;
        for side in pair.sides() {
            side.until_gone(&path)?;
        }
        if self.often(70) {
            self.change(
                pair,
                "POST /api/v1/namespaces",
                json!({"metadata": {"name": namespace}}),
            )?;
        }
        Ok(())
    }

    /// Something that a binding and a role belong to goes, and they follow.
    fn drop_owner(&mut self, pair: &Pair<'_>, namespace: &str) -> Result<()> {
        let maps = format!("/api/v1/namespaces/{namespace}/configmaps");
        self.change(
            pair,
            &format!("POST {maps}"),
            json!({"metadata": {"name": "owner"}}),
        )?;
        let owner = format!("{maps}/owner");
        let mut binding = self.binding(namespace);
        binding["metadata"]["name"] = "owned".into();
        let (_, mut role) = self.role(namespace);
        role["metadata"]["name"] = "owned".into();
        let of_namespace = format!("{RBAC}/namespaces/{namespace}");
        let owned = [
            (format!("{of_namespace}/rolebindings"), binding),
            (format!("{of_namespace}/roles"), role),
        ];
        for side in pair.sides() {
            for (collection, object) in &owned {
                side.create_owned(collection, object, &owner)?;
            }
        }
        self.history
            .push(format!("owned by {owner}: {}", owned[0].1));
        self.settle(pair)?;
        for _ in 0..QUESTIONS / 2 {
            self.question(pair)?;
        }
        self.change(
            pair,
            &format!("DELETE {owner}?propagationPolicy=Background"),
            Value::Null,
        )?;
        for side in pair.sides() {
            for (collection, _) in &owned {
                side.until_gone(&format!("{collection}/owned"))?;
            }
        }
        Ok(())
    }

    /// A service account's token ends with it, and is not that of one of the same name.
    fn account(&mut self, pair: &Pair<'_>) -> Result<()> {
        let namespace = self.namespaces[0].clone();
        self.change(
            pair,
            "POST /api/v1/namespaces",
            json!({"metadata": {"name": namespace}}),
        )?;
        let accounts = format!("/api/v1/namespaces/{namespace}/serviceaccounts");
        for name in ["s0", "s1"] {
            self.change(
                pair,
                &format!("POST {accounts}"),
                json!({"metadata": {"name": name}}),
            )?;
        }
        let tokens = |name: &str| -> Result<Vec<String>> {
            pair.sides()
                .iter()
                .map(|side| side.token(&namespace, name))
                .collect()
        };
        let (going, staying) = (tokens("s0")?, tokens("s1")?);
        self.change(pair, &format!("DELETE {accounts}/s0"), Value::Null)?;
        self.token_ends(pair, &going)?;
        self.change(
            pair,
            &format!("POST {accounts}"),
            json!({"metadata": {"name": "s0"}}),
        )?;
        self.token_ends(pair, &going)?;
        for _ in 0..QUESTIONS {
            let identity = self.identity();
            let reviews = "POST /apis/authentication.k8s.io/v1/selfsubjectreviews".to_owned();
            let mut answers = Vec::new();
            for (side, token) in pair.sides().iter().zip(&staying) {
                let (status, answer) = side.ask(&Question {
                    what: reviews.clone(),
                    body: json!({}),
                    who: Some(identity.clone()),
                    token: Some(token.clone()),
                })?;
                answers.push(json!([status, answer["status"]["userInfo"]]));
            }
            self.note(&format!("a service account acts as {identity:?}"), &answers);
        }
        Ok(())
    }

    /// Ours has to know at once; the real one has caches.
    fn token_ends(&mut self, pair: &Pair<'_>, tokens: &[String]) -> Result<()> {
        for (side, token) in pair.sides().iter().zip(tokens) {
            let question = Question {
                what: "GET /api/v1".to_owned(),
                body: Value::Null,
                who: None,
                token: Some(token.clone()),
            };
            let mut status = side.ask(&question)?.0;
            if side.name == "real" {
                let ends = plimsoll_test_support::poll::until(
                    "a token ends",
                    std::time::Duration::from_secs(60),
                    || {
                        status = side.ask(&question)?.0;
                        Ok((status == 401).then_some(()))
                    },
                );
                ends?;
            }
            self.note(
                &format!("a token of one who is gone, on {}", side.name),
                &[json!(status), json!(401)],
            );
        }
        Ok(())
    }

    fn clean_up(&mut self, pair: &Pair<'_>) -> Result<()> {
        for number in 0..4 {
            for (resource, letter) in [
                ("clusterroles", 'c'),
                ("clusterroles", 'm'),
                ("clusterrolebindings", 'b'),
            ] {
                let path = format!("{RBAC}/{resource}/{}-{letter}{number}", self.prefix);
                for side in pair.sides() {
                    side.ask(&Question::of_admin(&format!("DELETE {path}"), Value::Null))?;
                }
            }
        }
        for namespace in &self.namespaces {
            for side in pair.sides() {
                let what = format!("DELETE /api/v1/namespaces/{namespace}");
                side.ask(&Question::of_admin(&what, Value::Null))?;
            }
        }
        Ok(())
    }

    /// Both are changed in the same way by the administrator, and say the same about it.
    fn change(&mut self, pair: &Pair<'_>, what: &str, body: Value) -> Result<()> {
        self.history.push(format!("{what} {body}"));
        self.ask(pair, Question::of_admin(what, body))
    }

    fn ask(&mut self, pair: &Pair<'_>, question: Question) -> Result<()> {
        let mut answers = Vec::new();
        for side in pair.sides() {
            let (status, answer) = side.ask(&question)?;
            answers.push(json!([status, said(status, &answer)]));
        }
        // The administrator is always allowed to change and to ask.
        let is_yes = match &question.who {
            Some(_) => answers[0][0] != 403,
            None => answers[0][1] == true,
        };
        self.allowed += usize::from(is_yes);
        let who = question
            .who
            .map(|who| format!("{who:?} "))
            .unwrap_or_default();
        self.note(
            &format!("{who}{} {}", question.what, question.body),
            &answers,
        );
        Ok(())
    }

    /// `answers`: ours, and what it has to be.
    fn note(&mut self, what: &str, answers: &[Value]) {
        self.asked += 1;
        if answers[0] != answers[1] {
            let (ours, real) = (&answers[0], &answers[1]);
            self.differences
                .push(format!("{what}\n    ours {ours}\n    real {real}"));
        }
    }

    fn identity(&mut self) -> Identity {
        let account = self.often(25);
        let user = if account {
            format!(
                "system:serviceaccount:{}:s{}",
                self.namespace(),
                self.random.u8(..2)
            )
        } else {
            self.user()
        };
        let groups = match account {
            true => 0,
            false => self.random.usize(..3),
        };
        Identity {
            user,
            uid: if self.often(10) {
                "uid".to_owned()
            } else {
                String::new()
            },
            groups: (0..groups).map(|_| self.group()).collect(),
            extra: match self.often(10) {
                true => vec![("scopes".to_owned(), "x".to_owned())],
                false => Vec::new(),
            },
        }
    }

    fn question(&mut self, pair: &Pair<'_>) -> Result<()> {
        if self.often(45) {
            return self.review(pair);
        }
        let who = Some(self.identity());
        let namespace = self.namespace();
        let (what, body) = if self.often(40) {
            self.grant(&namespace)
        } else {
            self.request(&namespace)
        };
        let token = None;
        self.ask(
            pair,
            Question {
                what,
                body,
                who,
                token,
            },
        )
    }

    fn review(&mut self, pair: &Pair<'_>) -> Result<()> {
        let who = self.identity();
        let mut groups = who.groups.clone();
        // As a request's would be.
        if let Some(rest) = who.user.strip_prefix("system:serviceaccount:") {
            let namespace = rest.split(':').next().unwrap_or_default();
            groups.extend([
                "system:serviceaccounts".to_owned(),
                format!("system:serviceaccounts:{namespace}"),
            ]);
        }
        groups.push("system:authenticated".to_owned());
        let mut spec = json!({"user": who.user, "groups": groups});
        if self.often(10) {
            spec["nonResourceAttributes"] = json!({
                "verb": self.of(&["get", "post"]), "path": self.of(&["/metrics", "/logs", "/logs/a", "/x", "/apis/a"]),
            });
        } else {
            let resource = self.of(RESOURCES);
            let (resource, part) = resource.split_once('/').unwrap_or((resource, ""));
            let namespace = if self.often(85) {
                self.namespace()
            } else {
                String::new()
            };
            spec["resourceAttributes"] = json!({
                "verb": self.of(VERBS), "group": self.of(GROUPS), "resource": resource, "subresource": part,
                "namespace": namespace, "name": self.of(&["", "x", "y", "z"]),
            });
        }
        let what = "POST /apis/authorization.k8s.io/v1/subjectaccessreviews";
        self.ask(pair, Question::of_admin(what, json!({"spec": spec})))
    }

    /// An attempt to give something away, which changes nothing.
    fn grant(&mut self, namespace: &str) -> (String, Value) {
        let roles = format!("{RBAC}/namespaces/{namespace}/roles");
        match self.random.u8(..6) {
            0 => {
                let (path, mut role) = self.role(namespace);
                role["apiVersion"] = "rbac.authorization.k8s.io/v1".into();
                role["kind"] = "Role".into();
                (
                    format!("APPLY {path}?fieldManager=m&force=true&dryRun=All"),
                    role,
                )
            }
            1 => {
                let (path, role) = self.role(namespace);
                (format!("PUT {path}?dryRun=All"), role)
            }
            2 => {
                let (path, role) = self.cluster_role();
                (format!("PUT {path}?dryRun=All"), role)
            }
            3 => (
                format!("POST {RBAC}/clusterrolebindings?dryRun=All"),
                self.cluster_binding(),
            ),
            4 => {
                let mut role = self.role(namespace).1;
                role["metadata"]["name"] = "fresh".into();
                (format!("POST {roles}?dryRun=All"), role)
            }
            _ => {
                let binding = self.binding(namespace);
                (
                    format!("POST {RBAC}/namespaces/{namespace}/rolebindings?dryRun=All"),
                    binding,
                )
            }
        }
    }

    fn request(&mut self, namespace: &str) -> (String, Value) {
        let api = format!("/api/v1/namespaces/{namespace}");
        let leases = format!("/apis/coordination.k8s.io/v1/namespaces/{namespace}/leases");
        let name = self.of(&["x", "y"]);
        let map = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}});
        let lease = json!({"apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "metadata": {"name": name}});
        let nothing = Value::Null;
        match self.random.u8(..16) {
            0 => (format!("GET {api}/configmaps/{name}"), nothing),
            1 => (format!("GET {api}/secrets"), nothing),
            2 => (format!("GET {api}/secrets/{name}"), nothing),
            3 => (format!("GET {api}/pods/{name}/log"), nothing),
            4 => (
                format!("GET {api}/configmaps?fieldSelector=metadata.name={name}"),
                nothing,
            ),
            5 => (
                format!("DELETE {api}/configmaps/{name}?dryRun=All"),
                nothing,
            ),
            6 => (format!("DELETE {api}/configmaps?dryRun=All"), nothing),
            7 => (
                format!("APPLY {api}/configmaps/{name}?fieldManager=m&dryRun=All"),
                map,
            ),
            8 => (format!("POST {api}/configmaps?dryRun=All"), map),
            9 => (format!("PUT {leases}/{name}?dryRun=All"), lease),
            10 => (
                format!("APPLY {leases}/{name}?fieldManager=m&dryRun=All"),
                lease,
            ),
            11 => (
                format!("GET /apis/apps/v1/namespaces/{namespace}/deployments/{name}/scale"),
                nothing,
            ),
            12 => (
                format!("GET /api/v1/configmaps?limit=1&fieldSelector=metadata.name={name}"),
                nothing,
            ),
            13 => (
                format!("PATCH {api}/configmaps/{name}?dryRun=All"),
                json!({"data": {"a": "b"}}),
            ),
            14 => (
                format!("POST {api}/serviceaccounts/{name}/token"),
                json!({}),
            ),
            _ => (
                format!("GET {}", self.of(&["/x", "/logs/a", "/apis/a"])),
                nothing,
            ),
        }
    }
}

/// What both have to say: of refusals the message, of reviews the decision. Which of several bindings a decision is
/// by, and the order of what could not be found, is chance in a real server.
fn said(status: u16, answer: &Value) -> Value {
    if let Some(allowed) = answer["status"]["allowed"].as_bool() {
        return json!(allowed);
    }
    if status < 400 {
        return Value::Null;
    }
    let message = answer["message"].as_str().unwrap_or_default();
    let message = message.split(": RBAC: ").next().unwrap_or_default();
    let message = message
        .split("; resolution errors: ")
        .next()
        .unwrap_or_default();
    json!(message)
}
