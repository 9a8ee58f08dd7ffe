//! The server's own metrics: the families dashboards know, and some that say more.

pub mod access;
mod idle;
pub mod requests;

use std::sync::Arc;

use plimsoll_client::ClientMetrics;
use plimsoll_client::workqueue_metrics::WorkqueueMetrics;
use plimsoll_metrics::Exposition;
use plimsoll_serving::Counters;
use plimsoll_serving::auth::AuthFilter;
use plimsoll_serving::process_metrics;

use crate::api::freshness::Freshness;
use crate::audit::Audit;
use crate::scrape::Telemetry;
use crate::view::View;
use access::AccessCounts;
use requests::Requests;

/// Where the figures come from.
#[derive(Debug, Clone)]
pub struct OwnMetrics {
    pub view: View,
    pub telemetry: Telemetry,
    pub freshness: Freshness,
    pub requests: Requests,
    pub access: AccessCounts,
    pub sockets: Arc<Counters>,
    pub gate: AuthFilter,
    pub traffic: ClientMetrics,
    pub audit: Option<Audit>,
    pub work: Vec<WorkqueueMetrics>,
}

impl OwnMetrics {
    pub fn render(&self) -> String {
        let mut page = Exposition::default();
        self.requests.write(&mut page);
        let name = "apiserver_tls_handshake_errors_total";
        page.family(
            name,
            "counter",
            "[ALPHA] Connections that did not get past TLS.",
        );
        page.sample(name, &[], self.sockets.handshake_failures() as f64);
        self.access.write(&mut page);
        self.gate.write(&mut page);
        self.traffic.write(&mut page);
        Audit::write(self.audit.as_ref(), &mut page);
        WorkqueueMetrics::write_all(&self.work, &mut page);
        idle::write(&mut page);
        process_metrics::write(&mut page);
        idle::count_families(&mut page);
        // The original sorts these, and puts its own behind them.
        let mut page = page.sorted();
        self.original(&mut page);
        self.further(&mut page);
        page.finish()
    }

    /// Those that metrics-server has.
    fn original(&self, page: &mut Exposition) {
        if let Some(seen) = self.freshness.seen() {
            let name = "metrics_server_api_metric_freshness_seconds";
            page.family(
                name,
                "histogram",
                "[ALPHA] Age of the figures that were shown.",
            );
            page.histogram(name, &[], &seen);
        }
        let mut last = Exposition::default();
        let mut durations = Exposition::default();
        let last_name = "metrics_server_kubelet_last_request_time_seconds";
        let durations_name = "metrics_server_kubelet_request_duration_seconds";
        let mut any = false;
        self.telemetry.visit_nodes(&mut |node, histogram, at| {
            any = true;
            last.sample(last_name, &[("node", node)], at);
            durations.histogram(durations_name, &[("node", node)], histogram);
        });
        if any {
            page.family(
                last_name,
                "gauge",
                "[ALPHA] When a node was last asked, in seconds since the epoch.",
            );
            page.append(last);
            page.family(
                durations_name,
                "histogram",
                "[ALPHA] Time that a node's kubelet took to answer.",
            );
            page.append(durations);
        }
        let totals = self.telemetry.totals();
        let name = "metrics_server_kubelet_request_total";
        page.family(name, "counter", "[ALPHA] Requests to kubelets.");
        page.sample(name, &[("success", "false")], totals.failed as f64);
        page.sample(name, &[("success", "true")], totals.succeeded as f64);
        let name = "metrics_server_manager_tick_duration_seconds";
        page.family(
            name,
            "histogram",
            "[ALPHA] Time until every node had its turn.",
        );
        page.histogram(name, &[], &self.telemetry.ticks());
        let points = self.view.points();
        let name = "metrics_server_storage_points";
        page.family(
            name,
            "gauge",
            "[ALPHA] Points that have one before them, so that there is a rate.",
        );
        page.sample(name, &[("type", "container")], points.container as f64);
        page.sample(name, &[("type", "node")], points.node as f64);
    }

    /// Those that it lacks.
    fn further(&self, page: &mut Exposition) {
        let name = "plimsoll_metrics_server_scrape_failures_total";
        page.family(name, "counter", "Scrapes that came to nothing, by reason.");
        for (reason, count) in self.telemetry.failures() {
            page.sample(name, &[("reason", reason.as_str())], count as f64);
        }
        let name = "plimsoll_metrics_server_unlabelled_series_total";
        page.family(
            name,
            "counter",
            "Series of kubelets that do not say whose they are.",
        );
        page.sample(name, &[], self.telemetry.totals().unlabelled as f64);
        let name = "plimsoll_metrics_server_rival_pods_total";
        page.family(
            name,
            "counter",
            "Times a node told of a pod of which another had newer figures.",
        );
        page.sample(name, &[], self.view.rivals() as f64);
    }
}
