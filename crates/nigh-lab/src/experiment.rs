//! `nigh experiment`: tables and figures beside the papers', each by one command.

mod all;
mod client_calls;
mod cluster_faults;
mod crash;
mod escape;
mod eviction;
mod fabric;
mod failover;
mod judged_clients;
mod learn;
mod lies;
mod llc;
mod llc_tail;
mod mixed_load;
mod outside;
mod page;
mod pipelines;
mod power;
mod prewarm;
mod quotas;
mod scheduling;
mod shrink_impact;
mod single;
mod slow_clients;
mod storm;
mod upgrade;
mod workflows;

use clap::{Args, Subcommand};

use crate::LabError;
use crate::demo::DemoArgs;
use crate::instrument::machine::Machine;
use crate::instrument::peer::started::{EndedProcess, StartedProcesses};
use crate::instrument::report::print_report;

/// What `nigh experiment` takes.
#[derive(Clone, Debug, Args)]
pub struct ExperimentArgs {
    #[command(subcommand)]
    what: ExperimentCommand,
}

#[derive(Clone, Debug, Subcommand)]
enum ExperimentCommand {
    /// Real functions on real inputs: where their time goes, directly against the store and through Nigh (OFC figure 3)
    Demo(DemoArgs),
    /// A node killed again and again under load: no acknowledged write may be lost, no read old
    Crash(crash::CrashArgs),
    /// Power cut again and again under load, to a disk that forgets what was not synced: nothing acknowledged may be lost (root)
    Power(power::PowerArgs),
    /// A real cluster under real faults: no acknowledged write may be lost, no read old (root)
    ClusterFaults(cluster_faults::ClusterFaultsArgs),
    /// A node of a real cluster is killed, stopped or cut off: for how long writes wait, and where that time goes (root)
    Failover(failover::FailoverArgs),
    /// The nodes of a cluster are replaced by a newer program and back under load: no request may fail, nothing may be lost
    Upgrade(upgrade::UpgradeArgs),
    /// Others read and write the store behind Nigh: no read on either side may be old, no write of theirs lost
    Outside(outside::OutsideArgs),
    /// A hostile function tries to leave its sandbox, under each engine; none of its attempts may succeed
    Escape(escape::EscapeArgs),
    /// A tenant whose functions lie about what they need: what another tenant notices of it; it shall be nothing
    Lies(lies::LiesArgs),
    /// Many slow clients at a node's doors: what honest clients notice of them; it shall be nothing
    SlowClients(slow_clients::SlowClientsArgs),
    /// A tenant at ten times its quota: what another tenant notices of it, and how it is refused
    Quotas(quotas::QuotasArgs),
    /// A cluster for each seed, in virtual time, under many faults at once: no promise of the contract may break
    Storm(storm::StormArgs),
    /// A node's page in a real browser while functions run: what it must not ask, break or grow by (Chromium, npm)
    Page(page::PageArgs),
    /// Which copies the cache evicts: policies on a day of recorded invocations (OFC section 6.3)
    Eviction(eviction::EvictionArgs),
    /// Where invocations go: weights of the scheduler's criteria on simulated clusters (OFC section 6.5)
    Scheduling(scheduling::SchedulingArgs),
    /// Prefetch of the objects that an application reads, when the application starts: recorded invocations (Faa$T)
    Prewarm(prewarm::PrewarmArgs),
    /// Models of peak memory on real invocations, beside WEKA's (OFC table 1, figures 2, 5 and 6)
    Learn(learn::LearnArgs),
    /// Six image functions on 1 KB to 3 MB: Nigh (hit and miss) against Swift by two clients and Redis (OFC figure 7)
    Single(single::SingleArgs),
    /// Four applications of several stages: Nigh (hit and miss) against Swift and Redis (OFC figure 7, lower half)
    Pipelines(pipelines::PipelinesArgs),
    /// The mixed load of several tenants: Nigh, Nigh without cache and grants, Redis and Swift (OFC section 7.2.2)
    Macro(mixed_load::MacroArgs),
    /// How long a function waits when its sandbox grows and the cache must shrink (OFC figure 8)
    ShrinkImpact(shrink_impact::ShrinkImpactArgs),
    /// Functions together on one cache: no partitioning, CASY, Nigh, the best in hindsight; simulated (CASY figure 6)
    LlcScenarios(llc::ScenariosArgs),
    /// CASY's four functions alone and together, simulated (CASY figure 1)
    LlcContention(llc::ContentionArgs),
    /// Ways that each recorded input needs, with and without a prefetcher; simulated (CASY table III)
    LlcWays(llc::WaysArgs),
    /// Ways and class of inputs that no model has seen; simulated (CASY figure 5)
    LlcPrediction(llc::PageArgs),
    /// Time of each function by the ways it has; simulated (CASY figure 2)
    LlcSensitivity(llc::PageArgs),
    /// Tail latency of a key-value store beside a training job, by load and cache partition (CMU poster)
    LlcTail(llc_tail::LlcTailArgs),
    /// Workflows on a memory server by RDMA and CXL, with copies and without, under Nigh's protocol; simulated (Apta)
    Fabric(fabric::FabricArgs),
    /// Apta's six workflows on three nodes, by Nigh's protocol and by others, S3 and Redis; hits on another node (Apta)
    Workflows(workflows::WorkflowsArgs),
    /// Every experiment and bench, each result into its folder; the same command continues a run that was cut off
    All(all::AllArgs),
    /// One page of all stored results
    Report(all::ReportArgs),
    /// End the peers' servers that a run which crashed has left, and delete their files
    Clean,
}

impl ExperimentArgs {
    /// Runs the experiment and prints its report.
    ///
    /// # Errors
    /// If something it needs is missing or fails.
    pub async fn run(self, json: bool) -> Result<(), LabError> {
        let machine = Machine::of_this_command();
        match self.what {
            ExperimentCommand::Demo(demo) => Box::pin(demo.run(machine, json)).await,
            ExperimentCommand::Crash(crash) => crash.run(machine, json).await,
            ExperimentCommand::Power(power) => power.run(machine, json).await,
            ExperimentCommand::ClusterFaults(faults) => faults.run(machine, json).await,
            ExperimentCommand::Failover(failover) => failover.run(machine, json).await,
            ExperimentCommand::Upgrade(upgrade) => upgrade.run(machine, json).await,
            ExperimentCommand::Outside(outside) => outside.run(machine, json).await,
            ExperimentCommand::Escape(escape) => escape.run(machine, json).await,
            ExperimentCommand::Lies(lies) => lies.run(machine, json).await,
            ExperimentCommand::SlowClients(slow) => Box::pin(slow.run(machine, json)).await,
            ExperimentCommand::Quotas(quotas) => Box::pin(quotas.run(machine, json)).await,
            ExperimentCommand::Storm(storm) => storm.run(machine, json),
            ExperimentCommand::Page(page) => page.run(machine, json),
            ExperimentCommand::Eviction(eviction) => eviction.run(machine, json),
            ExperimentCommand::Scheduling(scheduling) => scheduling.run(machine, json),
            ExperimentCommand::Prewarm(prewarm) => prewarm.run(machine, json),
            ExperimentCommand::Learn(learn) => learn.run(machine, json),
            ExperimentCommand::Single(single) => Box::pin(single.run(machine, json)).await,
            ExperimentCommand::Pipelines(pipelines) => Box::pin(pipelines.run(machine, json)).await,
            ExperimentCommand::Macro(mixed) => Box::pin(mixed.run(machine, json)).await,
            ExperimentCommand::ShrinkImpact(impact) => Box::pin(impact.run(machine, json)).await,
            ExperimentCommand::LlcScenarios(scenarios) => scenarios.run(machine, json),
            ExperimentCommand::LlcContention(contention) => contention.run(machine, json),
            ExperimentCommand::LlcWays(ways) => llc::run_ways(&ways, machine, json),
            ExperimentCommand::LlcPrediction(prediction) => llc::run_prediction(&prediction, machine, json),
            ExperimentCommand::LlcSensitivity(sensitivity) => llc::run_sensitivity(&sensitivity, machine, json),
            ExperimentCommand::LlcTail(tail) => tail.run(machine, json),
            ExperimentCommand::Fabric(fabric) => fabric.run(machine, json),
            ExperimentCommand::Workflows(workflows) => Box::pin(workflows.run(machine, json)).await,
            ExperimentCommand::All(all) => all.run(json),
            ExperimentCommand::Report(report) => report.run(json),
            ExperimentCommand::Clean => {
                let ended = StartedProcesses::of_this_user().end_left_over();
                let line = |one: &EndedProcess| format!("ended {} ({}, process {})", one.peer, one.program, one.pid);
                let text = || ended.iter().map(line).collect::<Vec<_>>().join("\n");
                let text = || if ended.is_empty() { "nothing was left".to_owned() } else { text() };
                print_report(&ended, text, json)
            }
        }
    }
}
