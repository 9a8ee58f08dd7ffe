//! The rungs `cluster` and `cluster-quiet`: which tests run on which server, and what runs beside what.
//!
//! A group is a server and the tests that share it. Groups of one lane run one after the other, lanes beside each
//! other. What measures time or usage is in the quiet part, where nothing runs beside it.

use std::io::Stdout;
use std::path::Path;

use anyhow::{Error, Result, anyhow, bail};
use clap::ValueEnum;
use plimsoll_test_support::report::{Filter, Runner};

use crate::case::Case;
use crate::client::Server;
use crate::embedded::EmbeddedCluster;
use crate::open::Open;
use crate::real::RealCluster;
use crate::run::Stage;
use crate::{
    attack, authorization, chaos, check, colocation, deploy, first_use, leader, metrics, pool,
    scheduling,
};

/// Which half of the tests.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Part {
    /// May run beside anything.
    Busy,
    /// Wants the machine for itself.
    Quiet,
}

/// The tests of one server, by their names without the server's.
#[derive(Debug)]
pub struct Tests<'a> {
    runner: &'a Runner<Stdout>,
    filter: &'a Filter,
    server: &'static str,
}

impl Tests<'_> {
    fn full(&self, name: &str) -> String {
        format!("{}::{name}", self.server)
    }

    pub fn wants(&self, name: &str) -> bool {
        self.filter.wants(&self.full(name))
    }

    pub fn case(&self, name: &str, body: impl FnOnce() -> Result<String>) {
        self.runner.case(&self.full(name), body);
    }

    /// What all of these stand on is not there: each of them has failed.
    pub fn none_of<N: AsRef<str>>(&self, names: &[N], error: &Error) {
        for name in names {
            self.case(name.as_ref(), || {
                Err(anyhow!("it could not begin: {error:#}"))
            });
        }
        self.runner.lost("server");
    }
}

/// What all groups have.
#[derive(Debug, Clone, Copy)]
pub struct Plan<'a> {
    pub cases: &'a [Case],
    pub recordings: &'a Path,
    pub open: &'a Open,
    /// Files of the metrics server's tests.
    pub metrics: &'a Path,
    /// Folder with the programs of Kubernetes.
    pub kube_bin: Option<&'a Path>,
    /// The plimsoll binary.
    pub program: &'a Path,
    pub filter: &'a Filter,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    Embedded,
    Real,
}

struct Group {
    names: Vec<String>,
    work: Work,
}

enum Work {
    /// On a server that they share.
    On(Kind, fn(&Plan<'_>, &Server, &Tests<'_>)),
    /// They start their own.
    Alone(&'static str, fn(&Plan<'_>, &Tests<'_>)),
}

/// Runs the part, or both one after the other; `false` when something failed.
pub fn test(plan: &Plan<'_>, part: Option<Part>) -> bool {
    let wanted = |which| part.is_none_or(|part| part == which);
    let mut phases: Vec<Vec<Vec<Group>>> = Vec::new();
    if wanted(Part::Busy) {
        phases.push(busy(plan));
    }
    if wanted(Part::Quiet) {
        phases.extend(quiet());
    }
    let runner = Runner::new(std::io::stdout(), plan.filter.clone());
    for lanes in &phases {
        std::thread::scope(|scope| {
            for lane in lanes {
                scope.spawn(|| {
                    lane.iter()
                        .for_each(|group| run_group(plan, group, &runner))
                });
            }
        });
    }
    runner.finish()
}

fn busy(plan: &Plan<'_>) -> Vec<Vec<Group>> {
    let cases = || plan.cases.iter().map(|case| case.name.clone()).collect();
    let owned = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect();
    let mut roles_on_embedded = scheduling::names();
    roles_on_embedded.extend(metrics::ON_EMBEDDED.map(str::to_owned));
    roles_on_embedded.push(colocation::REPORT_AND_LEND.to_owned());
    roles_on_embedded.push(deploy::MANIFESTS.to_owned());
    if is_long() {
        roles_on_embedded.push(colocation::PAUSED.to_owned());
    }
    let mut on_real = first_use::NAMES.map(str::to_owned).to_vec();
    on_real.extend(scheduling::names());
    vec![
        vec![
            group(Kind::Real, cases(), run_cases),
            group(
                Kind::Real,
                owned(&metrics::ON_REAL),
                |plan, server, tests| {
                    metrics::on_real(&plan.for_metrics(), server, tests);
                },
            ),
            group(
                Kind::Real,
                owned(&[
                    colocation::REPORT_AND_LEND,
                    colocation::PAUSED,
                    deploy::MANIFESTS,
                    deploy::OWN_NODE,
                ]),
                |plan, server, tests| {
                    lend(plan, server, tests);
                    deployed(plan, server, tests);
                },
            ),
        ],
        vec![
            group(Kind::Embedded, cases(), run_cases),
            group(Kind::Embedded, roles_on_embedded, |plan, server, tests| {
                metrics::on_embedded(&plan.for_metrics(), server, tests);
                lend(plan, server, tests);
                deployed(plan, server, tests);
                scheduling::play(plan.program, server, tests);
            }),
        ],
        vec![
            group(Kind::Real, on_real, |plan, server, tests| {
                // Before there is anybody's lease or definition.
                first_use::play(plan.program, server, tests);
                scheduling::play(plan.program, server, tests);
            }),
            group(
                Kind::Real,
                owned(&[authorization::RANDOM]),
                |plan, server, tests| {
                    authorization::play(plan.program, plan.kube_bin, server, tests);
                },
            ),
        ],
        vec![Group {
            names: attack::names(),
            work: Work::Alone("up", |plan, tests| attack::play(plan.program, tests)),
        }],
        vec![Group {
            names: chaos::names(),
            work: Work::Alone(Kind::Real.name(), chaos::play),
        }],
    ]
}

/// Elections on both servers at once (they wait more than they compute); then, one by one, what compares the usage of
/// real pods.
fn quiet() -> Vec<Vec<Vec<Group>>> {
    let hold = |kind| {
        vec![group(kind, leader::names(), |_, server, tests| {
            leader::hold(server, tests);
        })]
    };
    let real_pods = group(
        Kind::Real,
        vec![
            metrics::KUBELET.to_owned(),
            colocation::REAL_PODS.to_owned(),
            colocation::PROTECT.to_owned(),
        ],
        |plan, server, tests| {
            metrics::real_kubelet(&plan.for_metrics(), server, tests);
            let manifests = plan.manifests();
            let stage = plan.for_colocation(&manifests);
            colocation::real_pods(&stage, server, tests);
            colocation::protect(&stage, server, tests);
        },
    );
    vec![
        vec![hold(Kind::Embedded), hold(Kind::Real)],
        vec![vec![real_pods]],
    ]
}

fn group(kind: Kind, names: Vec<String>, run: fn(&Plan<'_>, &Server, &Tests<'_>)) -> Group {
    let work = Work::On(kind, run);
    Group { names, work }
}

impl Kind {
    const fn name(self) -> &'static str {
        match self {
            Self::Embedded => "embedded",
            Self::Real => "real",
        }
    }
}

impl Work {
    /// What its tests' names begin with.
    fn server(&self) -> &'static str {
        match self {
            Self::On(kind, _) => kind.name(),
            Self::Alone(server, _) => server,
        }
    }
}

/// Starts the group's server, if any of its tests is wanted, and runs them on it.
fn run_group(plan: &Plan<'_>, group: &Group, runner: &Runner<Stdout>) {
    let tests = Tests {
        runner,
        filter: plan.filter,
        server: group.work.server(),
    };
    if !group.names.iter().any(|name| tests.wants(name)) {
        return;
    }
    match group.work {
        Work::Alone(_, run) => run(plan, &tests),
        Work::On(Kind::Embedded, run) => match started(|| EmbeddedCluster::start(plan.program)) {
            Ok(cluster) => run(plan, &cluster.server, &tests),
            Err(error) => tests.none_of(&group.names, &error),
        },
        Work::On(Kind::Real, run) => {
            // The rung says itself that it was left out.
            let Some(programs) = plan.kube_bin else {
                return;
            };
            match started(|| RealCluster::start(programs)) {
                Ok(cluster) => run(plan, &cluster.server, &tests),
                Err(error) => tests.none_of(&group.names, &error),
            }
        }
    }
}

/// On a busy machine a server can miss its own time limits while it starts, and ends. It gets a second chance.
fn started<C>(start: impl Fn() -> Result<C>) -> Result<C> {
    start().or_else(|error| {
        println!("a server did not start, it is started once more: {error:#}");
        start()
    })
}

fn run_cases(plan: &Plan<'_>, server: &Server, tests: &Tests<'_>) {
    let stage = Stage::new(server, plan.kube_bin);
    let is_real = tests.server == Kind::Real.name();
    let wanted: Vec<&Case> = plan
        .cases
        .iter()
        .filter(|case| tests.wants(&case.name))
        .collect();
    pool::each(&wanted, |case| {
        tests.case(&case.name, || {
            let mut checked = check::check(case, plan.recordings, &stage)?;
            let differing = checked.failed.len();
            // The real server has nothing to make up for.
            if !is_real {
                checked
                    .failed
                    .retain(|(step, ..)| !plan.open.has(&case.name, *step));
            }
            if !checked.failed.is_empty() {
                bail!("{}\n{}", case.about, checked.describe());
            }
            Ok(match differing {
                0 => format!("{} steps", checked.steps),
                open => format!("{} steps, {open} of them open", checked.steps),
            })
        });
        Ok(())
    });
}

/// Slow tests, which add little, are wanted too.
fn is_long() -> bool {
    std::env::var("PLIMSOLL_LONG").is_ok_and(|value| value == "1")
}

fn lend(plan: &Plan<'_>, server: &Server, tests: &Tests<'_>) {
    let manifests = plan.manifests();
    colocation::report_and_lend(&plan.for_colocation(&manifests), server, tests);
    if tests.server == Kind::Real.name() || is_long() {
        colocation::paused(&plan.for_colocation(&manifests), server, tests);
    }
}

fn deployed(plan: &Plan<'_>, server: &Server, tests: &Tests<'_>) {
    let manifests = plan.manifests();
    let stage = plan.for_colocation(&manifests);
    deploy::taken(&stage, server, tests);
    if tests.server == Kind::Real.name() {
        deploy::enforced(&stage, server, tests);
    }
}

impl<'a> Plan<'a> {
    fn for_metrics(&self) -> metrics::Stage<'a> {
        metrics::Stage {
            folder: self.metrics,
            program: self.program,
            kube_bin: self.kube_bin,
        }
    }

    pub fn manifests(&self) -> std::path::PathBuf {
        self.metrics.join("../../../deploy")
    }

    fn for_colocation<'b>(&self, manifests: &'b Path) -> colocation::Stage<'b>
    where
        'a: 'b,
    {
        colocation::Stage {
            manifests,
            program: self.program,
            kube_bin: self.kube_bin,
        }
    }
}
