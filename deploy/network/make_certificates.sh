#!/usr/bin/env bash
# Creates an authority for one cluster, and a certificate for its machines, in FOLDER.
#   deploy/network/make_certificates.sh FOLDER [DAYS=30]
# Copy ca.pem, task.pem and task.key to each machine. Anyone with task.key can join the cluster. Anyone with ca.key can
# issue more certificates; delete it once all are issued.
set -euo pipefail
folder=$1 days=${2:-30}
umask 077
mkdir -p "$folder"
cd "$folder"
# -nodes, as OpenSSL 1.1 knows no -noenc.
openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -days "$days" -subj "/CN=ps_train cluster" \
  -keyout ca.key -out ca.pem
openssl req -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -subj "/CN=ps_train task" \
  -keyout task.key -out task.csr
openssl x509 -req -in task.csr -CA ca.pem -CAkey ca.key -CAcreateserial -days "$days" -out task.pem
rm task.csr
