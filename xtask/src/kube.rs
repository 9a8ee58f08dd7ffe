//! `cargo xtask kube`: the programs of a real Kubernetes, built from the Go module proxy into the cache.

mod go;

use std::fs;
use std::path::{Path, PathBuf};
use std::time::Instant;

use anyhow::{Context, Result, ensure};
use serde_json::Value;

use crate::workspace;
use go::Go;

const KUBERNETES: &str = "1.36.3";
/// Older ones lack progress requests, and every watch with initial events then ends in an error.
const ETCD: &str = "3.6.5";
const KUBERNETES_PROGRAMS: &[&str] = &[
    "kube-apiserver",
    "kube-controller-manager",
    "kube-scheduler",
    "kubectl",
    "kubelet",
];
/// What `plimsoll metrics-server` is held against.
const METRICS_SERVER: &str = "0.9.0";
/// What the cluster tests cannot do without.
const NEEDED: &[&str] = &["kube-apiserver", "etcd"];

/// A folder with the programs: the one that `PLIMSOLL_KUBE_BIN` names, else the cache's, built if need be.
pub fn programs() -> Result<PathBuf> {
    let named = std::env::var_os("PLIMSOLL_KUBE_BIN").filter(|value| !value.is_empty());
    let Some(folder) = named.map(PathBuf::from) else {
        return obtain();
    };
    for name in NEEDED {
        ensure!(
            folder.join(name).is_file(),
            "PLIMSOLL_KUBE_BIN: there is no {name} in {}",
            folder.display()
        );
    }
    Ok(folder)
}

/// Whether `programs` needs to build nothing.
pub fn are_at_hand() -> Result<bool> {
    let named = std::env::var_os("PLIMSOLL_KUBE_BIN").is_some_and(|value| !value.is_empty());
    let folder = folder(&workspace::cache()?);
    let mut all = KUBERNETES_PROGRAMS.iter().chain(&["etcd"]);
    Ok(named || all.all(|name| folder.join(name).is_file()))
}

fn folder(cache: &Path) -> PathBuf {
    cache.join(format!("kubernetes-{KUBERNETES}-etcd-{ETCD}"))
}

/// Builds what the cache lacks and gives its folder.
pub fn obtain() -> Result<PathBuf> {
    let cache = workspace::cache()?;
    let folder = folder(&cache);
    let is_missing = |name: &&str| !folder.join(name).is_file();
    let kubernetes: Vec<&str> = KUBERNETES_PROGRAMS
        .iter()
        .copied()
        .filter(is_missing)
        .collect();
    let needs_etcd = is_missing(&"etcd");
    let needs_metrics_server = is_missing(&"metrics-server");
    if kubernetes.is_empty() && !needs_etcd && !needs_metrics_server {
        return Ok(folder);
    }
    fs::create_dir_all(&folder)?;
    // Go's caches are ours and several gigabytes; an interrupted build finds them again.
    let work = folder.join("work");
    let go = Go::find(&cache, &work)?;
    println!("building with {go} in {}", folder.display());
    if needs_etcd {
        build_etcd(&go, &folder, &work)?;
    }
    if !kubernetes.is_empty() {
        build_kubernetes(&go, &kubernetes, &folder, &work)?;
    }
    // Only who records its answers anew cannot do without.
    if needs_metrics_server && let Err(error) = build_metrics_server(&go, &folder, &work) {
        println!("  without metrics-server: {error:#}");
    }
    fs::remove_dir_all(&work).context("remove Go's caches")?;
    Ok(folder)
}

fn build_etcd(go: &Go, folder: &Path, work: &Path) -> Result<()> {
    let module = format!(
        "module rig\n\ngo {}\n\nrequire go.etcd.io/etcd/server/v3 v{ETCD}\n",
        go::NEEDED
    );
    let build = Build::new(work, "etcd", &module)?;
    let finished = build.finished.join("etcd");
    go.build(
        "etcd (some 2 minutes)",
        &build.module,
        &finished,
        "-s -w",
        &["go.etcd.io/etcd/server/v3".to_owned()],
    )?;
    take(&finished, folder)
}

fn build_metrics_server(go: &Go, folder: &Path, work: &Path) -> Result<()> {
    let module = format!(
        "module rig\n\ngo {}\n\nrequire sigs.k8s.io/metrics-server v{METRICS_SERVER}\n",
        go::NEEDED
    );
    let build = Build::new(work, "metrics-server", &module)?;
    let finished = build.finished.join("metrics-server");
    go.build(
        "metrics-server (some 3 minutes)",
        &build.module,
        &finished,
        "-s -w",
        &["sigs.k8s.io/metrics-server/cmd/metrics-server".to_owned()],
    )?;
    take(&finished, folder)
}

fn build_kubernetes(go: &Go, programs: &[&str], folder: &Path, work: &Path) -> Result<()> {
    let started = Instant::now();
    let answer = go.download(work, &format!("k8s.io/kubernetes@v{KUBERNETES}"))?;
    let answer: Value = serde_json::from_str(&answer).context("answer of go mod download")?;
    let path = answer["GoMod"]
        .as_str()
        .context("go mod download names no go.mod")?;
    let upstream = fs::read_to_string(path).with_context(|| format!("read {path}"))?;
    println!("  sources after {} s", started.elapsed().as_secs());

    let build = Build::new(work, "kubernetes", &module_of(&upstream))?;
    let packages: Vec<String> = programs
        .iter()
        .map(|name| format!("k8s.io/kubernetes/cmd/{name}"))
        .collect();
    let what = format!("{} (some 8 minutes for all)", programs.join(", "));
    // The slash makes it a folder even for a single program.
    let finished = build.finished.join("");
    go.build(&what, &build.module, &finished, &linker_flags(), &packages)?;
    for name in programs {
        take(&build.finished.join(name), folder)?;
    }
    Ok(())
}

/// A module of ours that needs Kubernetes: `go install` refuses it, because its own module file replaces its staging
/// modules by folders which the module proxy does not carry. Published they are, as v0.MINOR.PATCH.
fn module_of(upstream: &str) -> String {
    let staging = KUBERNETES.replacen('1', "0", 1);
    let replaced: String = upstream
        .lines()
        .filter_map(|line| {
            let (name, folder) = line.trim().split_once(" => ")?;
            folder.starts_with("./staging/").then_some(name)
        })
        .map(|name| format!("\t{name} => {name} v{staging}\n"))
        .collect();
    format!(
        "module rig\n\ngo {}\n\nrequire k8s.io/kubernetes v{KUBERNETES}\n\nreplace (\n{replaced})\n",
        go::NEEDED
    )
}

/// Without a version the programs call themselves v0.0.0-master, and kubectl's version check fails.
fn linker_flags() -> String {
    let mut numbers = KUBERNETES.split('.');
    let major = numbers.next().unwrap_or_default();
    let minor = numbers.next().unwrap_or_default();
    let mut flags = String::from("-s -w");
    for package in [
        "k8s.io/component-base/version",
        "k8s.io/client-go/pkg/version",
    ] {
        for (name, value) in [
            ("gitVersion", format!("v{KUBERNETES}").as_str()),
            ("gitMajor", major),
            ("gitMinor", minor),
            ("gitCommit", "0"),
            ("gitTreeState", "clean"),
            ("buildDate", "2026-01-01T00:00:00Z"),
        ] {
            flags.push_str(&format!(" -X {package}.{name}={value}"));
        }
    }
    flags
}

/// Where one module is built.
struct Build {
    module: PathBuf,
    finished: PathBuf,
}

impl Build {
    fn new(work: &Path, name: &str, go_mod: &str) -> Result<Self> {
        let module = work.join(name);
        let finished = module.join("bin");
        fs::create_dir_all(&finished)?;
        fs::write(module.join("go.mod"), go_mod)?;
        Ok(Self { module, finished })
    }
}

/// The rename is what makes a program complete: an interrupted build leaves none that is half.
fn take(program: &Path, folder: &Path) -> Result<()> {
    let name = program.file_name().context("a program has a name")?;
    fs::rename(program, folder.join(name))
        .with_context(|| format!("take {} over", program.display()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn staging_modules_become_published_ones() {
        let upstream = "module k8s.io/kubernetes\n\nreplace (\n\tk8s.io/api => ./staging/src/k8s.io/api\n\tother.example/x => ../x\n)\n";
        assert_eq!(
            module_of(upstream),
            "module rig\n\ngo 1.26.0\n\nrequire k8s.io/kubernetes v1.36.3\n\nreplace (\n\tk8s.io/api => k8s.io/api v0.36.3\n)\n"
        );
    }

    #[test]
    fn both_version_packages_get_the_version() {
        let flags = linker_flags();
        for package in ["component-base/version", "client-go/pkg/version"] {
            assert!(flags.contains(&format!("{package}.gitVersion=v1.36.3")));
            assert!(flags.contains(&format!("{package}.gitMinor=36")));
        }
    }
}
