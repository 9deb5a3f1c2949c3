//! The demo's pool: three simulated engines on free ports, and the router's configuration for them, as a
//! file that a reader can take further.

use std::{fmt::Write as _, net::SocketAddr, time::Duration};

use anyhow::Context;

use super::{
    advice::{Program, quoted},
    folder::Folder,
};
use crate::{
    simengine::{self, Handle, Options},
    truth::{Profile, ProfileEntry, ProfileFit},
};

/// One model of the demo: its profile, and what the paper's tables say of it.
struct DemoModel {
    profile: &'static str,
    /// USD a million prompt and output tokens (Table 1).
    price: [f64; 2],
    /// Mean score over the four tasks (Table 2).
    accuracy: f64,
    /// Mean output tokens over the four tasks, by their lognormals.
    output_tokens: f64,
}

const MODELS: [DemoModel; 3] = [
    DemoModel { profile: "qwen3-0.6b-h100", price: [0.044, 0.173], accuracy: 0.3531, output_tokens: 380.0 },
    DemoModel { profile: "qwen3-8b-h100", price: [0.072, 0.287], accuracy: 0.7876, output_tokens: 423.0 },
    DemoModel { profile: "qwen3-32b-2xh100", price: [0.287, 0.640], accuracy: 0.8954, output_tokens: 444.0 },
];

/// A running engine and what the configuration says of it.
pub(super) struct DemoEngine {
    handle: Handle,
    profile: Profile,
    fit: ProfileFit,
    model: &'static DemoModel,
    seed: u64,
}

impl DemoEngine {
    /// Describes it in one line.
    pub(super) fn line(&self) -> String {
        format!("{:<11} {:<35} http://{}", self.profile.model, self.profile.hardware, self.handle.addr())
    }

    /// Returns its model's name.
    pub(super) fn model(&self) -> &str {
        &self.profile.model
    }

    /// Returns how late it runs, on average.
    pub(super) fn lag(&self) -> Duration {
        self.handle.lag()
    }

    /// Ends it.
    pub(super) async fn shutdown(self) {
        self.handle.shutdown().await;
    }
}

/// Starts the three engines, the smallest model first.
pub(super) async fn start_engines(seed: u64) -> anyhow::Result<Vec<DemoEngine>> {
    let mut engines = Vec::with_capacity(MODELS.len());
    for (model, number) in MODELS.iter().zip(0..) {
        let seed = seed.wrapping_add(number);
        let entry =
            ProfileEntry::find(model.profile).context("the demo names a profile that is not built in")?;
        let profile = Profile::built_in(model.profile)?;
        let options = Options { seed, ..Options::default() };
        let handle = simengine::spawn(profile.clone(), options).await?;
        engines.push(DemoEngine { handle, profile, fit: entry.parse_fit()?, model, seed });
    }
    Ok(engines)
}

/// Writes the router's configuration for these engines.
pub(super) fn configuration(engines: &[DemoEngine], listen: SocketAddr, folder: &Folder) -> String {
    let mut yaml = String::from("# The configuration of `bear demo`.");
    if folder.is_kept() {
        push_commands(&mut yaml, engines, folder);
    } else {
        yaml.push_str(" It goes when the demo ends; `bear demo --keep DIR` keeps it.\n");
    }
    _ = writeln!(yaml, "listen: {{address: \"{listen}\", admin: null}}");
    _ = writeln!(yaml, "# Predictions learnt from made-up evaluations: for a demo only.");
    _ = writeln!(yaml, "predictors: {{bundle: {:?}, allow_synthetic: true}}", folder.bundle());
    _ = writeln!(yaml, "store: {{url: {:?}}}\nmodels:", folder.store_url());
    for engine in engines {
        push_model(&mut yaml, engine);
    }
    _ = writeln!(yaml, "instances:");
    for engine in engines {
        push_instance(&mut yaml, engine);
    }
    yaml
}

/// Writes the commands that bring the demo back by hand, as comments.
fn push_commands(yaml: &mut String, engines: &[DemoEngine], folder: &Folder) {
    let program = Program::running();
    yaml.push_str(" To start it again by hand, each line in a terminal of its own:\n#\n");
    for engine in engines {
        let (profile, port) = (engine.model.profile, engine.handle.addr().port());
        _ = writeln!(yaml, "#   {program} engine --profile {profile} --port {port} --seed {}", engine.seed);
    }
    _ = writeln!(yaml, "#   {program} serve --config {}\n#", quoted(&folder.configuration()));
}

fn push_model(yaml: &mut String, engine: &DemoEngine) {
    let (profile, model) = (&engine.profile, engine.model);
    _ = writeln!(
        yaml,
        "  - id: {}\n    parameters_b: {:?}\n    max_model_len: {}\n    \
         price: {{input_usd_per_mtok: {:?}, output_usd_per_mtok: {:?}}}\n    \
         tokenizer: {{engine: true}}\n    \
         prior: {{accuracy: {:?}, output_tokens: {:?}}}",
        profile.model,
        profile.parameters_b,
        profile.engine.max_model_len,
        model.price[0],
        model.price[1],
        model.accuracy,
        model.output_tokens,
    );
}

fn push_instance(yaml: &mut String, engine: &DemoEngine) {
    let (fit, addr, model) = (&engine.fit, engine.handle.addr(), &engine.profile.model);
    let b = fit.batch_time;
    _ = writeln!(
        yaml,
        "  - id: {model}-0\n    model: {model}\n    url: \"http://{addr}\"\n    \
         snapshots: {{source: http, address: \"http://{addr}/bear/snapshot\", period_ms: 20}}\n    \
         batch_time: {{b0_s: {:e}, b1_s: {:e}, b2_s: {:e}, b3_s: {:e}, b4_s: {:?}}}\n    \
         overhead: {{ingress_s: {:?}, egress_s: {:?}}}\n    \
         effective_prefill_tokens_per_s: {:?}\n    peak_prefill_tokens_per_s: {:?}",
        b.b0_s,
        b.b1_s,
        b.b2_s,
        b.b3_s,
        b.b4_s,
        fit.overhead.ingress_s,
        fit.overhead.egress_s,
        fit.effective_prefill_tokens_per_s,
        fit.peak_prefill_tokens_per_s,
    );
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config;

    #[tokio::test]
    async fn the_written_configuration_is_one_that_the_router_takes() {
        let parent = tempfile::tempdir().unwrap();
        let folder = Folder::kept(&parent.path().join("demo")).unwrap();
        let engines = start_engines(1).await.unwrap();
        let yaml = configuration(&engines, "127.0.0.1:8080".parse().unwrap(), &folder);
        let checked = config::parse(std::path::Path::new("demo.yaml"), &yaml).unwrap().check().unwrap();
        assert_eq!(checked.models.len(), 3);
        for engine in &engines {
            let (profile, port) = (engine.model.profile, engine.handle.addr().port());
            assert!(yaml.contains(&format!("engine --profile {profile} --port {port} ")), "{yaml}");
        }
        assert!(yaml.contains("demo/bear.yaml\n#\n"), "{yaml}");
        let temporary = Folder::temporary().unwrap();
        let yaml = configuration(&engines, "127.0.0.1:8080".parse().unwrap(), &temporary);
        assert!(yaml.contains("--keep") && !yaml.contains("engine --profile"), "{yaml}");
        assert!(checked.warnings.is_empty(), "{:?}", checked.warnings);
        let b0: Vec<f64> = checked.instances.iter().map(|i| i.batch_time.unwrap().b0_s).collect();
        assert!(b0.is_sorted(), "{b0:?}");
    }
}
