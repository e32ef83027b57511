//! Every experiment and bench whose result is stored: its folder, its command, and its short form.

use std::path::Path;

/// One of them.
#[derive(Debug)]
pub(super) struct Experiment {
    /// The folder of its result.
    pub(super) name: &'static str,
    /// What it shows.
    pub(super) about: &'static str,
    /// What `nigh` is told.
    command: &'static [&'static str],
    /// What is added in the short form.
    quick: &'static [&'static str],
    /// The page in its folder, if it makes one.
    pub(super) page: Option<&'static str>,
}

/// All, in the order in which they run: what measures this machine first, before simulations heat it.
pub(super) const EXPERIMENTS: &[Experiment] = &[
    Experiment {
        name: "single",
        about: "Single functions against Swift and Redis (OFC figure 7)",
        command: &["experiment", "single"],
        quick: &["--quick"],
        page: Some("single.html"),
    },
    Experiment {
        name: "pipelines",
        about: "Applications of several stages against Swift and Redis (OFC figure 7, lower half)",
        command: &["experiment", "pipelines"],
        quick: &["--quick"],
        page: Some("pipelines.html"),
    },
    Experiment {
        name: "demo",
        about: "Where the time of real functions goes (OFC figure 3)",
        command: &["experiment", "demo"],
        quick: &["--seconds", "0", "--rounds", "1"],
        page: Some("demo.html"),
    },
    Experiment {
        name: "macro",
        about: "The mixed load of several tenants (OFC section 7.2.2: figures 9 and 10, table 2)",
        command: &["experiment", "macro"],
        quick: &["--quick"],
        page: Some("macro.html"),
    },
    Experiment {
        name: "workflows",
        about: "Apta's workflows on three nodes, by Nigh's coherence protocol and by others (Apta figure 8)",
        command: &["experiment", "workflows"],
        quick: &["--quick"],
        page: None,
    },
    Experiment {
        name: "shrink-impact",
        about: "What a function pays when its sandbox grows and the cache gives way (OFC figure 8)",
        command: &["experiment", "shrink-impact"],
        quick: &["--quick"],
        page: None,
    },
    Experiment {
        name: "lies",
        about: "Functions that lie about what they need: what another tenant notices of each",
        command: &["experiment", "lies"],
        quick: &["--seconds", "1"],
        page: None,
    },
    Experiment {
        name: "escape",
        about: "Escape attempts of a hostile function, under each engine",
        command: &["experiment", "escape"],
        quick: &["--without-control"],
        page: None,
    },
    Experiment {
        name: "crash",
        about: "A node killed again and again under load: acknowledged writes lost, old reads",
        command: &["experiment", "crash"],
        quick: &["--kills", "8"],
        page: None,
    },
    Experiment {
        name: "cluster-faults",
        about: "A real cluster under real faults: acknowledged writes lost, old reads, shards without a home",
        command: &["experiment", "cluster-faults"],
        quick: &["--faults", "10"],
        page: None,
    },
    Experiment {
        name: "outside",
        about: "Readers and writers beside Nigh: old reads and lost writes, by store and write mode",
        command: &["experiment", "outside"],
        quick: &["--seconds", "1.5"],
        page: None,
    },
    Experiment {
        name: "bench-s3",
        about: "The S3 door against bare s3s and a canned server",
        command: &["bench", "s3"],
        quick: &["--rounds", "1", "--seconds", "0.1"],
        page: None,
    },
    Experiment {
        name: "bench-invoke",
        about: "Warm and cold invocations against the vendor's runtime client",
        command: &["bench", "invoke"],
        quick: &["--rounds", "1", "--seconds", "0.1"],
        page: None,
    },
    Experiment {
        name: "bench-coldstart",
        about: "Cold starts, prewarmed and not, under each engine",
        command: &["bench", "coldstart"],
        quick: &["--rounds", "1"],
        page: None,
    },
    Experiment {
        name: "bench-contention",
        about: "Callers of several functions that share the memory of a node's sandboxes",
        command: &["bench", "contention"],
        quick: &["--quick", "--seconds", "2"],
        page: None,
    },
    Experiment {
        name: "bench-functions",
        about: "What 10,000 functions cost to create, to keep and to start with",
        command: &["bench", "functions"],
        quick: &["--count", "100"],
        page: None,
    },
    Experiment {
        name: "bench-journal",
        about: "The journal's commits against bare writes and syncs",
        command: &["bench", "journal"],
        quick: &["--rounds", "1", "--seconds", "0.1"],
        page: None,
    },
    Experiment {
        name: "bench-ledger",
        about: "A cluster's commits against bare publishes to the same NATS servers",
        command: &["bench", "ledger"],
        quick: &["--rounds", "1", "--seconds", "0.1"],
        page: None,
    },
    Experiment {
        name: "bench-rpc",
        about: "Calls between processes against bare TCP and bare rustls",
        command: &["bench", "rpc"],
        quick: &["--rounds", "2"],
        page: None,
    },
    Experiment {
        name: "bench-objects",
        about: "boto3 by the hook against MinIO, clients of the fast path against Redis",
        command: &["bench", "objects"],
        quick: &["--quick"],
        page: None,
    },
    Experiment {
        name: "bench-memory",
        about: "What a cached object takes beside its bytes",
        command: &["bench", "memory"],
        quick: &["--objects", "50000"],
        page: None,
    },
    Experiment {
        name: "bench-shrink",
        about: "Memory that the cache gives back, against closing files in memory",
        command: &["bench", "shrink"],
        quick: &["--rounds", "1"],
        page: None,
    },
    Experiment {
        name: "bench-reelect",
        about: "Objects that a shrinking node gives up, handed to a node that has them already (OFC section 6.4)",
        command: &["bench", "reelect"],
        quick: &["--rounds", "1"],
        page: None,
    },
    Experiment {
        name: "bench-grant",
        about: "A sandbox's memory: its limit, the step before a run, and the wait at the limit",
        command: &["bench", "grant"],
        quick: &["--steps", "5", "--rounds", "1"],
        page: None,
    },
    Experiment {
        name: "storm",
        about: "Clusters in virtual time under many faults at once: promises broken",
        command: &["experiment", "storm"],
        quick: &["--seeds", "100"],
        page: None,
    },
    Experiment {
        name: "eviction",
        about: "Which copies the cache gives up, on a day of invocations (OFC section 6.3)",
        command: &["experiment", "eviction"],
        quick: &["--seeds", "1"],
        page: None,
    },
    Experiment {
        name: "prewarm",
        about: "What applications read, brought into memory when they start, on a day of invocations (Faa$T)",
        command: &["experiment", "prewarm"],
        quick: &["--minutes", "60"],
        page: None,
    },
    Experiment {
        name: "scheduling",
        about: "Where invocations go: weights of the scheduler's criteria, on simulated clusters (OFC section 6.5)",
        command: &["experiment", "scheduling"],
        quick: &["--quick"],
        page: None,
    },
    Experiment {
        name: "learn",
        about: "Models of peak memory on real invocations, beside WEKA's (OFC table 1, figures 2, 5 and 6)",
        command: &["experiment", "learn"],
        quick: &["--quick"],
        page: Some("learn.html"),
    },
    Experiment {
        name: "bench-coherence",
        about: "The coherence protocol's machines, and a placement over a thousand nodes",
        command: &["bench", "coherence"],
        quick: &["--rounds", "1", "--objects", "100000"],
        page: None,
    },
    Experiment {
        name: "bench-llc",
        about: "The cache simulator, placement and layout",
        command: &["bench", "llc"],
        quick: &["--rounds", "1"],
        page: None,
    },
    Experiment {
        name: "llc-contention",
        about: "Four functions alone and together on one cache (CASY figure 1)",
        command: &["experiment", "llc-contention"],
        quick: &["--quick"],
        page: Some("contention.html"),
    },
    Experiment {
        name: "llc-sensitivity",
        about: "Time by the ways a function has (CASY figure 2)",
        command: &["experiment", "llc-sensitivity"],
        quick: &[],
        page: Some("sensitivity.html"),
    },
    Experiment {
        name: "llc-ways",
        about: "Ways that each input needs (CASY table III)",
        command: &["experiment", "llc-ways"],
        quick: &["--quick"],
        page: Some("ways.html"),
    },
    Experiment {
        name: "llc-prediction",
        about: "Ways and class of inputs no model has seen (CASY figure 5)",
        command: &["experiment", "llc-prediction"],
        quick: &[],
        page: Some("prediction.html"),
    },
    Experiment {
        name: "llc-scenarios",
        about: "Scenarios of functions on one cache (CASY figure 6)",
        command: &["experiment", "llc-scenarios"],
        quick: &["--quick"],
        page: Some("scenarios.html"),
    },
    Experiment {
        name: "llc-tail",
        about: "Tail latency beside a training job (CMU poster)",
        command: &["experiment", "llc-tail"],
        quick: &["--quick"],
        page: Some("tail.html"),
    },
    Experiment {
        name: "fabric",
        about: "Workflows on a memory server by RDMA and CXL, simulated (Apta figures 2, 8, 9 and 10)",
        command: &["experiment", "fabric"],
        quick: &["--quick"],
        page: Some("fabric.html"),
    },
    Experiment {
        name: "llc-selftest",
        about: "resctrl's driver against real kernels",
        command: &["llc", "selftest", "--vm"],
        quick: &["--seeds", "1"],
        page: None,
    },
];

impl Experiment {
    /// What `nigh` is told to run it for `out`.
    pub(super) fn arguments(&self, out: &Path, quick: bool) -> Vec<String> {
        let mut arguments: Vec<String> = self.command.iter().map(|&word| word.to_owned()).collect();
        if quick {
            arguments.extend(self.quick.iter().map(|&word| word.to_owned()));
        }
        arguments.push("--json".to_owned());
        if let Some(page) = self.page {
            arguments.extend(["--html".to_owned(), out.join(self.name).join(page).display().to_string()]);
        }
        arguments
    }

    /// The same as one types it.
    pub(super) fn command_line(&self, out: &Path, quick: bool) -> String {
        format!("nigh {}", self.arguments(out, quick).join(" "))
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn each_has_a_folder_of_its_own_and_prints_json() {
        let names: BTreeSet<&str> = EXPERIMENTS.iter().map(|experiment| experiment.name).collect();
        assert_eq!(names.len(), EXPERIMENTS.len());
        for experiment in EXPERIMENTS {
            let line = experiment.command_line(Path::new("out"), false);
            assert!(line.contains(" --json"), "{line}");
            assert_eq!(line.contains("--html out/"), experiment.page.is_some(), "{line}");
        }
    }
}
