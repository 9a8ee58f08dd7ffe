//! Does the steps of a case on a server and gives the answers as they came.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use plimsoll_test_support::poll;
use plimsoll_test_support::report::LeaveOut;
use serde_json::{Map, Value, json};

use crate::answer::{kept_headers, leave_out_documentation, read_body, reduce};
use crate::case::{Case, KUBECTL, Planned, Step, Until};
use crate::client::{Exchange, Request, Server};
use crate::kubectl::Kubectl;
use crate::watch::Watch;

/// How long a wanted state may take.
const PATIENCE: Duration = Duration::from_secs(120);
/// Servers name the field manager of an update after it.
const USER_AGENT: &str = "cases/1.0";

/// What a case gave, and what has to be known to compare it.
#[derive(Debug)]
pub struct Outcome {
    pub namespace: String,
    pub host: String,
    /// One for each step: `status`, `headers`, and the body as `json`, `yaml`, `text`, `binary`, `events` or `only`.
    pub answers: Vec<Value>,
}

/// Where cases run.
#[derive(Debug)]
pub struct Stage {
    pub server: Server,
    /// The kubectl program, if there is one.
    pub kubectl: Option<PathBuf>,
}

impl Stage {
    /// `kube_bin` is the folder with kubectl.
    pub fn new(server: &Server, kube_bin: Option<&Path>) -> Self {
        let kubectl = kube_bin.map(|folder| folder.join("kubectl"));
        Self {
            server: server.clone(),
            kubectl: kubectl.filter(|program| program.is_file()),
        }
    }
}

/// Runs the case in a namespace of its own.
pub fn run(case: &Case, stage: &Stage) -> Result<Outcome> {
    let server = &stage.server;
    let namespace = format!("t-{}", letters(8));
    let kubectl = match (&stage.kubectl, case.needs_kubectl()) {
        (_, false) => None,
        (Some(program), true) => Some(Kubectl::new(program, server, &namespace)?),
        (None, true) => return Err(LeaveOut("there is no kubectl".to_owned()).into()),
    };
    let mut runner = Runner {
        server,
        variables: BTreeMap::from([("ns".to_owned(), namespace.clone())]),
        watches: BTreeMap::new(),
        kubectl,
    };
    runner.clean(&case.cleanup);
    runner.make_namespace(&namespace)?;
    let mut answers = Vec::new();
    for planned in &case.steps {
        let answer = runner.step(planned);
        answers.push(answer.unwrap_or_else(|error| json!({"failure": format!("{error:#}")})));
    }
    let written = case.written();
    answers
        .iter_mut()
        .for_each(|answer| leave_out_documentation(answer, &written));
    runner.watches.clear();
    runner.clean(&case.cleanup);
    runner.clean(&[format!("/api/v1/namespaces/{namespace}")]);
    Ok(Outcome {
        namespace,
        host: server.address.to_string(),
        answers,
    })
}

fn letters(count: usize) -> String {
    (0..count).map(|_| fastrand::lowercase()).collect()
}

struct Runner<'a> {
    server: &'a Server,
    variables: BTreeMap<String, String>,
    watches: BTreeMap<String, Watch>,
    kubectl: Option<Kubectl<'a>>,
}

impl Runner<'_> {
    fn make_namespace(&mut self, name: &str) -> Result<()> {
        let request = self.plain("POST", "/api/v1/namespaces");
        let body = json!({"metadata": {"name": name}}).to_string();
        let exchange = self.server.send(&Request {
            body: Some(body.into_bytes()),
            ..request
        })?;
        let status = exchange.status;
        let answer = String::from_utf8_lossy(&exchange.body()?).into_owned();
        ensure!(status == 201, "make namespace {name}: {status} {answer}");
        Ok(())
    }

    /// What is not there need not be removed, so answers do not matter.
    fn clean(&mut self, paths: &[String]) {
        for path in paths {
            let path = self.fill(path);
            let mut request = self.plain("DELETE", &path);
            request.body = Some(br#"{"gracePeriodSeconds":0}"#.to_vec());
            let _ = self.server.send(&request).and_then(Exchange::body);
        }
        // Definitions go some time after they were deleted, and show in everybody's discovery until then.
        for path in paths
            .iter()
            .filter(|path| path.contains("/customresourcedefinitions/"))
        {
            let request = self.plain("GET", &self.fill(path));
            let _ = poll::until("a definition is gone", PATIENCE, || {
                let answer = self.server.send(&request)?;
                Ok((answer.status != 200).then_some(()))
            });
        }
    }

    fn plain(&self, method: &str, path: &str) -> Request {
        let header = |name: &str, value: &str| (name.to_owned(), value.to_owned());
        Request {
            method: method.to_owned(),
            path: path.to_owned(),
            headers: vec![
                header(
                    "Authorization",
                    &format!("Bearer {}", self.server.admin_token),
                ),
                header("User-Agent", USER_AGENT),
                header("Accept", "application/json"),
                header("Content-Type", "application/json"),
            ],
            body: None,
        }
    }

    fn step(&mut self, planned: &Planned) -> Result<Value> {
        let step = &planned.step;
        self.variables.remove("each");
        if let Some(each) = &planned.each {
            self.variables.insert("each".to_owned(), self.fill(each));
        }
        self.variables
            .insert("pad".to_owned(), "x".repeat(step.pad));
        let answer = match (&step.collect, &step.until) {
            (Some(name), _) => self.collect(name, step)?,
            (None, None) => self.ask(planned)?,
            (None, Some(until)) => self.ask_until(planned, until)?,
        };
        for (name, pointer) in &step.save {
            // A missing value shows up as a difference of this step; the next ones are still worth their answers.
            let value = match answer.get("json").and_then(|body| body.pointer(pointer)) {
                Some(Value::String(text)) => text.clone(),
                Some(other) => other.to_string(),
                None => format!("missing-{name}"),
            };
            self.variables.insert(name.clone(), value);
        }
        let only: Vec<String> = step.only.iter().map(|part| self.fill(part)).collect();
        Ok(reduce(answer, step, &only))
    }

    fn ask_until(&mut self, planned: &Planned, until: &Until) -> Result<Value> {
        let mut last = Value::Null;
        let reached = poll::until(&planned.title, PATIENCE, || {
            last = self.ask(planned)?;
            let reached = match until {
                Until::Status(status) => {
                    last["status"] == json!(status) || last["exit"] == json!(status)
                }
                Until::Values(values) => values.iter().all(|(pointer, wanted)| {
                    let found = last.get("json").and_then(|body| body.pointer(pointer));
                    match (wanted, found) {
                        (Value::String(wanted), Some(found)) => *found == self.fill(wanted),
                        (wanted, found) => found == Some(wanted),
                    }
                }),
            };
            Ok(reached.then_some(()))
        });
        match reached {
            Ok(()) => Ok(last),
            Err(error) if last.is_null() => Err(error),
            // The answer that it stayed at says more than that time ran out.
            Err(_) => Ok(last),
        }
    }

    fn ask(&mut self, planned: &Planned) -> Result<Value> {
        let request = self.request(planned)?;
        if planned.method == KUBECTL {
            let kubectl = self.kubectl.as_ref().context("there is no kubectl")?;
            return kubectl.run(&request.path, request.body.as_deref());
        }
        let exchange = self.server.send(&request)?;
        let mut answer = Map::new();
        answer.insert("status".to_owned(), json!(exchange.status));
        answer.insert("headers".to_owned(), kept_headers(&exchange));
        let is_stream = exchange.status == 200 && planned.step.open.is_some();
        if let (true, Some(name)) = (is_stream, &planned.step.open) {
            self.watches.insert(name.clone(), Watch::new(exchange));
            return Ok(Value::Object(answer));
        }
        let content_type = exchange.header("content-type").unwrap_or_default();
        let content_type = content_type.to_owned();
        let bytes = exchange.body()?;
        if let Some((kind, body)) = read_body(&content_type, &bytes) {
            answer.insert(kind.to_owned(), body);
        }
        Ok(Value::Object(answer))
    }

    fn collect(&mut self, name: &str, step: &Step) -> Result<Value> {
        let Some(watch) = self.watches.get_mut(name) else {
            bail!("no watch {name} is open");
        };
        watch.collect(step.count, step.end)
    }

    fn request(&self, planned: &Planned) -> Result<Request> {
        let step = &planned.step;
        let mut request = self.plain(&planned.method, &self.path(&planned.path)?);
        request.body = match (&step.body, &step.raw) {
            (Some(body), _) => Some(self.fill(&body.to_string()).into_bytes()),
            (None, Some(raw)) => Some(self.fill(raw).into_bytes()),
            (None, None) => None,
        };
        let headers = &mut request.headers;
        if request.body.is_none() {
            set(headers, "Content-Type", None);
        }
        if let Some(kind) = &step.content_type {
            set(headers, "Content-Type", media_type(kind));
        }
        if let Some(kind) = &step.accept {
            set(headers, "Accept", media_type(&self.fill(kind)));
        }
        if let Some(token) = &step.token {
            let token = self.fill(token);
            set(headers, "Authorization", Some(format!("Bearer {token}")));
        }
        match step.identity.as_deref() {
            None => {}
            Some("none") => set(headers, "Authorization", None),
            Some(identity) => {
                let identity = self.fill(identity);
                let mut names = identity.split(',');
                let user = names.next().unwrap_or_default().to_owned();
                headers.push(("Impersonate-User".to_owned(), user));
                for group in names {
                    headers.push(("Impersonate-Group".to_owned(), group.to_owned()));
                }
            }
        }
        for (name, value) in &step.headers {
            set(headers, name, Some(self.fill(value)));
        }
        Ok(request)
    }

    /// `@v1/pods` is below `/api/v1/namespaces/NS`, `@apps/v1/deployments` below `/apis/apps/v1/namespaces/NS`.
    fn path(&self, path: &str) -> Result<String> {
        let path = self.fill(path);
        let Some(short) = path.strip_prefix('@') else {
            return Ok(path);
        };
        let namespace = &self.variables["ns"];
        let (first, rest) = short.split_once('/').context("a path after @")?;
        if first == "v1" {
            return Ok(format!("/api/v1/namespaces/{namespace}/{rest}"));
        }
        let (version, rest) = rest.split_once('/').context("a version after @")?;
        Ok(format!(
            "/apis/{first}/{version}/namespaces/{namespace}/{rest}"
        ))
    }

    /// Replaces `$NAME` of known variables; anything else that starts with `$` stays.
    fn fill(&self, text: &str) -> String {
        let mut filled = String::with_capacity(text.len());
        let mut rest = text;
        while let Some(dollar) = rest.find('$') {
            filled.push_str(&rest[..dollar]);
            let after = &rest[dollar + 1..];
            let length = after
                .find(|letter: char| !letter.is_ascii_alphanumeric())
                .unwrap_or(after.len());
            match self.variables.get(&after[..length]) {
                Some(value) => filled.push_str(value),
                None => filled.push_str(&rest[dollar..=dollar + length]),
            }
            rest = &after[length..];
        }
        filled.push_str(rest);
        filled
    }
}

fn set(headers: &mut Vec<(String, String)>, name: &str, value: Option<String>) {
    headers.retain(|(key, _)| !key.eq_ignore_ascii_case(name));
    headers.extend(value.map(|value| (name.to_owned(), value)));
}

/// Short names of media types; `None` is no header at all.
fn media_type(name: &str) -> Option<String> {
    let full = match name {
        "none" => return None,
        "json" => "application/json-patch+json",
        "merge" => "application/merge-patch+json",
        "strategic" => "application/strategic-merge-patch+json",
        "apply" => "application/apply-patch+yaml",
        "yaml" => "application/yaml",
        "protobuf" => "application/vnd.kubernetes.protobuf",
        "table" => "application/json;as=Table;v=v1;g=meta.k8s.io",
        "partial" => "application/json;as=PartialObjectMetadata;v=v1;g=meta.k8s.io",
        "partial-list" => "application/json;as=PartialObjectMetadataList;v=v1;g=meta.k8s.io",
        "discovery" => "application/json;as=APIGroupDiscoveryList;v=v2;g=apidiscovery.k8s.io",
        other => other,
    };
    Some(full.to_owned())
}
