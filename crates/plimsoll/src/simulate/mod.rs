//! `plimsoll simulate`: what the scheduler would do.

mod live;
mod report;

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail, ensure};
use clap::{ArgGroup, Args, ValueEnum};
use plimsoll_sched::model::Names;
use plimsoll_sched::queue::QueueConfig;
use plimsoll_sched::what_if::{self, Answer, Question};
use plimsoll_sched::{Config, Time};
use plimsoll_scheduler::config::{self, Configuration};
use serde_json::Value;

use crate::Failure;

/// Where the cluster comes from: one of two flags.
const CLUSTER: &str = "cluster";

/// Show what the scheduler would do with a cluster, without touching it
///
/// Takes a cluster as it is, adds pods or empties nodes, and schedules every pod that has no node, with the scheduler's
/// own code and at full speed. Prints where pods go, which fail and why, who is evicted, and how full nodes are. Nothing
/// is written to any cluster. The same input and seed give the same output.
#[derive(Debug, Args)]
#[command(group = ArgGroup::new(CLUSTER).required(true))]
#[command(after_long_help = "\
Examples:

  # Would these pods fit?
  kubectl get nodes,pods,pv,pvc,sc,pdb,svc,rs,sts,priorityclasses -A -o yaml > cluster.yaml
  plimsoll simulate --from cluster.yaml --add pods.yaml

  # Can two nodes be taken away for an afternoon?
  plimsoll simulate --kubeconfig ~/.kube/config --drain node-7 --drain node-8

  # What would another configuration change?
  plimsoll simulate --from cluster.yaml --add pods.yaml --profile binpack.yaml

  # For a program
  plimsoll simulate --from cluster.yaml --add pods.yaml -o json | jq '.failed[].message'

Files are YAML or JSON: documents, or lists as kubectl writes them. --add takes pods, and Deployments, ReplicaSets,
StatefulSets, ReplicationControllers and Jobs, of which it adds as many pods as they ask for.

A drained node is cordoned, and its pods have to find another one; those of daemon sets stay. Volumes that wait for a
first consumer count as provisioned where their pod goes. Pods that are evicted are gone, as after their grace period.

A profile is a KubeSchedulerConfiguration, as kube-scheduler reads it. With one, the cluster is asked twice, and what it
does is shown with the difference to the standard configuration; with two, with the difference between the first and the
second. Extenders are not asked.

It ends with 0 if every pod has a node, and with 1 if not.")]
pub struct SimulateArgs {
    /// The cluster: files of objects, as `kubectl get -o yaml` writes them
    #[arg(long, value_name = "FILE", group = CLUSTER)]
    from: Vec<PathBuf>,
    /// The cluster: one that runs, of which everything that scheduling looks at is read once
    #[arg(long, value_name = "FILE", group = CLUSTER)]
    kubeconfig: Option<PathBuf>,
    /// Pods to add
    #[arg(long, value_name = "FILE")]
    add: Vec<PathBuf>,
    /// A node to empty
    #[arg(long, value_name = "NODE")]
    drain: Vec<String>,
    /// A KubeSchedulerConfiguration; a second one is compared with the first
    #[arg(long, value_name = "FILE")]
    profile: Vec<PathBuf>,
    /// Decides between nodes that are equally good
    #[arg(long, value_name = "NUMBER", default_value_t = 1)]
    seed: u64,
    /// How to print
    #[arg(long, short, value_name = "FORMAT", default_value = "text")]
    output: Output,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Output {
    Text,
    Json,
}

pub fn run(args: &SimulateArgs) -> Result<(), Failure> {
    if args.profile.len() > 2 {
        let error = anyhow::anyhow!(
            "two configurations can be compared, not {}",
            args.profile.len()
        );
        return Err(Failure::Usage(error));
    }
    let mut configurations = Vec::new();
    if args.profile.len() < 2 {
        configurations.push(Configuration::default());
    }
    for file in &args.profile {
        configurations.push(configuration(file).map_err(Failure::Usage)?);
    }
    let question = question(args, &configurations).map_err(Failure::Run)?;
    let mut answers = Vec::new();
    for configuration in &configurations {
        answers.push(answer(&question, configuration, args.seed).map_err(Failure::Run)?);
    }
    let last = answers.pop().unwrap_or_default();
    let before = answers.pop();
    match args.output {
        Output::Text => print!("{}", report::text(&last, before.as_ref())),
        Output::Json => println!("{}", report::json(&last, before.as_ref())),
    }
    if last.failed.is_empty() {
        return Ok(());
    }
    Err(Failure::Run(anyhow::anyhow!(
        "{} of {} pods have no node",
        last.failed.len(),
        last.failed.len() + last.placed.len()
    )))
}

fn configuration(file: &Path) -> Result<Configuration> {
    let text = fs::read_to_string(file).with_context(|| format!("read {}", file.display()))?;
    config::parse(&text).with_context(|| format!("{} is no configuration", file.display()))
}

fn question(args: &SimulateArgs, configurations: &[Configuration]) -> Result<Question> {
    let objects = match &args.kubeconfig {
        Some(kubeconfig) => live::read(kubeconfig, configurations)?,
        None => read_all(&args.from)?,
    };
    ensure!(
        objects.iter().any(|object| object["kind"] == "Node"),
        "there is no node in the cluster; was it `kubectl get nodes,pods -A -o yaml`?"
    );
    Ok(Question {
        objects,
        add: read_all(&args.add)?,
        drain: args.drain.clone(),
    })
}

fn answer(question: &Question, configuration: &Configuration, seed: u64) -> Result<Answer> {
    let mut names = Names::default();
    let mut configuration = configuration.clone();
    configuration.check()?;
    let (profiles, _) = configuration.build(&mut names)?;
    let config = Config {
        profiles,
        queue: QueueConfig::default(),
        seed,
    };
    let now = moment(&question.objects);
    Ok(what_if::ask(question, config, names, now)?)
}

/// When the newest NodeMetric was reported, for reports expire; else always the same. The answer is to depend on nothing
/// but the question.
fn moment(objects: &[Value]) -> Time {
    let metrics = objects.iter().filter(|one| one["kind"] == "NodeMetric");
    let reported = metrics.filter_map(|one| Time::parse(one["status"]["updateTime"].as_str()?));
    reported.max().unwrap_or(Time::from_secs(1_800_000_000))
}

fn read_all(files: &[PathBuf]) -> Result<Vec<Value>> {
    let mut objects = Vec::new();
    for file in files {
        objects.extend(read(file)?);
    }
    Ok(objects)
}

fn read(file: &Path) -> Result<Vec<Value>> {
    let text = fs::read_to_string(file).with_context(|| format!("read {}", file.display()))?;
    parse(&text).with_context(|| format!("{} is not a file of objects", file.display()))
}

fn parse(text: &str) -> Result<Vec<Value>> {
    let documents: Vec<Value> = match serde_json::from_str(text) {
        Ok(document) => vec![document],
        Err(_) => serde_saphyr::from_multiple(text)?,
    };
    let mut objects = Vec::new();
    for document in documents {
        flatten(document, &mut objects)?;
    }
    Ok(objects)
}

fn flatten(document: Value, objects: &mut Vec<Value>) -> Result<()> {
    if document.is_null() {
        return Ok(());
    }
    let kind = document["kind"].as_str().unwrap_or_default().to_owned();
    let Some(item) = kind.strip_suffix("List") else {
        if kind.is_empty() {
            bail!("a document has no kind");
        }
        objects.push(document);
        return Ok(());
    };
    let Some(Value::Array(items)) = document.get("items") else {
        return Ok(());
    };
    for object in items {
        let mut object = object.clone();
        // Items of a typed list do not say what they are.
        if object["kind"].is_null() && !item.is_empty() {
            object["kind"] = Value::String(item.to_owned());
        }
        flatten(object, objects)?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn reports_are_as_old_as_they_were() {
        let at = |time: &str| json!({"kind": "NodeMetric", "status": {"updateTime": time}});
        let node = json!({"kind": "Node"});
        let old = at("2026-01-01T00:00:00Z");
        let new = at("2026-01-01T00:03:00Z");
        assert_eq!(
            Some(moment(&[new, node.clone(), old, at("never")])),
            Time::parse("2026-01-01T00:03:00Z")
        );
        assert_eq!(moment(&[node]), Time::from_secs(1_800_000_000));
    }

    #[test]
    fn documents_and_lists_become_objects() {
        let text = "kind: Node\nmetadata: {name: a}\n---\nkind: List\nitems:\n- {kind: Pod, metadata: {name: p}}\n---\n\
            kind: PodList\nitems:\n- {metadata: {name: q}}\n";
        let objects = parse(text).unwrap();
        let kinds: Vec<_> = objects.iter().map(|object| &object["kind"]).collect();
        assert_eq!(kinds, ["Node", "Pod", "Pod"]);
        assert!(parse("metadata: {name: a}").is_err());
        assert!(parse("a: [").is_err());
    }
}
