//! `plimsoll explain`: why a pod is where it is, or is nowhere.

use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Context, Result, anyhow, bail};
use clap::{Args, Subcommand};

use plimsoll_scheduler::config::{self, Configuration};
use plimsoll_scheduler::live::Options;

use crate::{Failure, runtime};

/// For everything to be read.
const READ_WITHIN: Duration = Duration::from_secs(60);

/// Say why a pod is pending and what would make it fit, or why it is where it is
#[derive(Debug, Args)]
#[command(after_long_help = "\
Reads the cluster as the scheduler does and says what every plugin says about every node:

  plimsoll explain pod default/web-0
  plimsoll explain pod default/web-0 --output json

A running `plimsoll scheduler` remembers its last cycles, with the scores that won; ask it instead:

  plimsoll explain pod default/web-0 --scheduler https://127.0.0.1:10259")]
pub struct ExplainArgs {
    #[command(subcommand)]
    what: What,
}

#[derive(Debug, Subcommand)]
enum What {
    /// A pod
    #[command(args_override_self = true)]
    Pod(PodArgs),
}

#[derive(Debug, Args)]
struct PodArgs {
    /// NAMESPACE/NAME, or NAME in the namespace `default`
    pod: String,
    /// Whom to ask [default: the one that KUBECONFIG names, else ~/.kube/config]
    #[arg(long, value_name = "FILE", env = "KUBECONFIG")]
    kubeconfig: Option<PathBuf>,
    /// Ask this scheduler, which remembers, instead of looking at the cluster as it is now
    #[arg(long, value_name = "URL")]
    scheduler: Option<String>,
    /// The scheduler's KubeSchedulerConfiguration, where it is not the standard one
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,
    /// text or json
    #[arg(short, long, value_name = "FORMAT", default_value = "text", value_parser = ["text", "json"])]
    output: String,
}

pub fn run(args: &ExplainArgs) -> Result<(), Failure> {
    let What::Pod(pod) = &args.what;
    let (namespace, name) = pod.pod.split_once('/').unwrap_or(("default", &pod.pod));
    if [namespace, name].iter().any(|part| part.is_empty()) || name.contains('/') {
        let error = anyhow!("{:?} is neither NAMESPACE/NAME nor NAME", pod.pod);
        return Err(Failure::Usage(error));
    }
    let runtime = runtime(1).map_err(Failure::Run)?;
    let told = runtime.block_on(async {
        match &pod.scheduler {
            Some(url) => asked(pod, url, namespace, name).await,
            None => looked_up(pod, namespace, name).await,
        }
    });
    runtime.shutdown_timeout(Duration::from_millis(100));
    print!("{}", told.map_err(Failure::Run)?);
    Ok(())
}

impl PodArgs {
    fn clients(&self) -> plimsoll_client::Config {
        let home = std::env::var_os("HOME").map(PathBuf::from);
        let standard = home.map(|home| home.join(".kube/config"));
        let kubeconfig = self.kubeconfig.clone();
        plimsoll_client::Config::from_flag(kubeconfig.or(standard.filter(|path| path.exists())))
    }

    fn configuration(&self) -> Result<Configuration> {
        let mut configuration = match &self.config {
            None => Configuration::default(),
            Some(file) => {
                let text = std::fs::read_to_string(file);
                config::parse(&text.with_context(|| format!("read {}", file.display()))?)?
            }
        };
        configuration.check()?;
        Ok(configuration)
    }
}

/// With the credentials of the kubeconfig, whose user may read `/explain`.
async fn asked(args: &PodArgs, url: &str, namespace: &str, name: &str) -> Result<String> {
    let clients = args.clients().build().await?;
    let mut config = (*clients.config()).clone();
    config.cluster_url = url.parse().context("--scheduler")?;
    // It makes its certificate itself, most often.
    plimsoll_client::skip_tls_verify(&mut config);
    let client = kube::Client::try_from(config)?;
    let format = match args.output.as_str() {
        "text" => "?output=text",
        _ => "",
    };
    let path = format!("/explain/pods/{namespace}/{name}{format}");
    let request = http::Request::get(path).body(Vec::new())?;
    let answer = client.request_text(request).await;
    answer.map_err(|error| anyhow!("{url}: {}", plimsoll_client::explain(&error)))
}

/// By a scheduler of our own, which decides nothing.
async fn looked_up(args: &PodArgs, namespace: &str, name: &str) -> Result<String> {
    let configuration = args.configuration()?;
    let clients = args.clients().build().await?;
    // Whoever cannot read the pod would only learn it after a minute of reading everything else.
    let path = format!("/api/v1/namespaces/{namespace}/pods/{name}");
    let request = http::Request::get(path).body(Vec::new())?;
    let there = clients.client().request_text(request).await;
    there.map_err(|error| anyhow!("read the pod: {}", plimsoll_client::explain(&error)))?;
    let report = Options::new(configuration)
        .explain(clients.client(), namespace, name, READ_WITHIN)
        .await
        .map_err(|missing| anyhow!("{missing}"))?;
    let Some(report) = report else {
        bail!(
            "there is no pod {namespace}/{name} that needs a node, or it is another scheduler's (see --config)"
        );
    };
    Ok(match args.output.as_str() {
        "text" => report.text(),
        _ => serde_json::to_string_pretty(&report)? + "\n",
    })
}
