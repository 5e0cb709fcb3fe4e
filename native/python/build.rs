//! Lets the code ask what the interpreter is that it is built for.

fn main() {
    pyo3_build_config::use_pyo3_cfgs();
}
