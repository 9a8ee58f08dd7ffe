//! What happens, by seed: objects come, change and go, and questions are asked in between.

use anyhow::Result;
use serde_json::{Value, json};

use super::sides::{Pair, Question};
use super::words::{LABELS, RBAC, Words};

const ROUNDS: usize = 12;
/// After each change.
const QUESTIONS: usize = 14;

pub struct Story {
    words: Words,
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
        Self {
            words: Words::new(seed),
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
        for namespace in self.words.namespaces.clone() {
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

    fn question(&mut self, pair: &Pair<'_>) -> Result<()> {
        let question = self.words.question();
        self.ask(pair, question)
    }

    fn settle(&mut self, pair: &Pair<'_>) -> Result<()> {
        for number in 0..LABELS.len() - 1 {
            pair.until_rules_agree(&format!("{}-m{number}", self.words.prefix))?;
        }
        self.round += 1;
        pair.settle(self.round)
    }

    /// A role or a binding more, or another in its place.
    fn grow(&mut self, pair: &Pair<'_>) -> Result<()> {
        let namespace = self.words.namespace();
        match self.words.below(5) {
            0 => {
                let (path, role) = self.words.role(&namespace);
                self.change(pair, &format!("PUT {path}"), role)
            }
            1 | 2 => {
                let (path, role) = self.words.cluster_role();
                self.change(pair, &format!("PUT {path}"), role)
            }
            3 => {
                let binding = self.words.cluster_binding();
                self.replace(pair, &format!("{RBAC}/clusterrolebindings"), binding)
            }
            _ => {
                let binding = self.words.binding(&namespace);
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
        let namespace = self.words.namespace();
        match self.words.below(20) {
            0 => self.drop_namespace(pair, &namespace),
            1 | 2 => self.drop_owner(pair, &namespace),
            3..6 => {
                let name = format!("b{}", self.words.below(4));
                let what = format!("DELETE {RBAC}/namespaces/{namespace}/rolebindings/{name}");
                self.change(pair, &what, Value::Null)
            }
            6 => {
                let name = format!("r{}", self.words.below(3));
                let what = format!("DELETE {RBAC}/namespaces/{namespace}/roles/{name}");
                self.change(pair, &what, Value::Null)
            }
            7..9 => {
                let name = self.words.cluster_role_name();
                self.change(
                    pair,
                    &format!("DELETE {RBAC}/clusterroles/{name}"),
                    Value::Null,
                )
            }
            9..12 => {
                let name = self.words.cluster_role_name();
                let label = self.words.of(&LABELS);
                let value = self.words.of(&[json!(self.words.prefix), json!(null)]);
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
        if self.words.often(70) {
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
        let mut binding = self.words.binding(namespace);
        binding["metadata"]["name"] = "owned".into();
        let (_, mut role) = self.words.role(namespace);
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
        let namespace = self.words.namespaces[0].clone();
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
            let identity = self.words.identity();
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
                let path = format!("{RBAC}/{resource}/{}-{letter}{number}", self.words.prefix);
                for side in pair.sides() {
                    side.ask(&Question::of_admin(&format!("DELETE {path}"), Value::Null))?;
                }
            }
        }
        for namespace in &self.words.namespaces {
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
