//! The state of each application, built from what the world reports of it.

use super::config::EngineConfig;
use super::windows::ApplicationWindow;
use crate::ids::AppId;
use crate::observe::{ApplicationReading, RunnableThreads};
use crate::time::Time;
use crate::view::ApplicationView;
use std::collections::BTreeMap;

/// All applications.
#[derive(Debug, Default)]
pub struct Applications {
    /// What each did recently.
    pub views: BTreeMap<AppId, ApplicationView>,
    windows: BTreeMap<AppId, ApplicationWindow>,
    /// The runnable threads of each, where the world reports every change.
    pub runnable: BTreeMap<AppId, RunnableThreads>,
}

impl Applications {
    /// Takes in the readings of all; they were read `before`, too. One without a reading is forgotten.
    pub fn take(
        &mut self,
        readings: &[ApplicationReading],
        (before, now): (Time, Time),
        config: &EngineConfig,
    ) {
        let mut windows = std::mem::take(&mut self.windows);
        self.views.clear();
        for reading in readings {
            let mut window = windows.remove(&reading.app).unwrap_or_default();
            let mut view = window.take(reading, before, now, config.window);
            if let Some(runnable) = self.runnable.get(&reading.app) {
                (view.runnable, view.only) = (Some(runnable.count), runnable.only);
            }
            self.views.insert(reading.app, view);
            self.windows.insert(reading.app, window);
        }
        self.runnable.retain(|app, _| self.views.contains_key(app));
    }

    /// Takes in a changed number of runnable threads. An application that is not known yet is judged by that
    /// until the next observation.
    pub fn take_runnable(&mut self, runnable: RunnableThreads) {
        let view = self.views.entry(runnable.app).or_insert_with(|| ApplicationView {
            tlp_mean: f64::from(runnable.count),
            sequential_fraction: None,
            exact: false,
            runnable: None,
            only: None,
        });
        (view.runnable, view.only) = (Some(runnable.count), runnable.only);
        self.runnable.insert(runnable.app, runnable);
    }

    /// Returns whether any thread of an application is known to be runnable at this instant.
    pub fn works(&self, app: AppId) -> bool {
        self.runnable.get(&app).is_some_and(|runnable| runnable.count > 0)
    }
}
