/* What a device is: its names, its place, its MIG instances. */
#include <stdio.h>
#include <string.h>

#include "getters.h"

GET_TEXT(nvmlDeviceGetName, NAME)
GET_TEXT(nvmlDeviceGetUUID, UUID)
GET_TEXT(nvmlDeviceGetSerial, SERIAL)
GET_TEXT(nvmlDeviceGetBoardPartNumber, BOARD_PART_NUMBER)
GET_TEXT(nvmlDeviceGetVbiosVersion, VBIOS_VERSION)
GET(nvmlDeviceGetBrand, unsigned int, BRAND)
GET(nvmlDeviceGetArchitecture, unsigned int, ARCHITECTURE)
GET_PAIR(nvmlDeviceGetCudaComputeCapability, COMPUTE_CAPABILITY_MAJOR, COMPUTE_CAPABILITY_MINOR,
         false)
GET(nvmlDeviceGetNumGpuCores, unsigned int, CORES)
GET(nvmlDeviceGetMemoryBusWidth, unsigned int, MEMORY_BUS_WIDTH)
GET(nvmlDeviceGetMinorNumber, unsigned int, MINOR_NUMBER)
GET(nvmlDeviceGetNumaNodeId, unsigned int, NUMA_NODE)
GET(nvmlDeviceGetMultiGpuBoard, unsigned int, MULTI_GPU_BOARD)

nvmlReturn_t nvmlDeviceGetIndex(nvmlDevice_t device, unsigned int *index)
{
    struct call call;
    nvmlReturn_t result = call_begin_device(&call, F_nvmlDeviceGetIndex, device, ONCE);
    if (result != NVML_SUCCESS)
        return result;
    if (index == NULL)
        return call_end(&call, NVML_ERROR_INVALID_ARGUMENT);
    *index = (unsigned)(call.mig == NONE ? call.gpu : call.mig);
    if (call.device->values[K_INDEX].present)
        result = read_into(call.device, K_INDEX, index, sizeof *index);
    return call_end(&call, result);
}

/* Structs with a version in front: the caller must know the same one. */
nvmlReturn_t nvmlDeviceGetAddressingMode(nvmlDevice_t device, nvmlDeviceAddressingMode_t *mode)
{
    struct call call;
    nvmlReturn_t result = call_begin_device(&call, F_nvmlDeviceGetAddressingMode, device, ONCE);
    if (result != NVML_SUCCESS)
        return result;
    if (mode == NULL)
        result = NVML_ERROR_INVALID_ARGUMENT;
    else if (mode->version != NVML_VERSION(nvmlDeviceAddressingMode_t, 1))
        result = NVML_ERROR_ARGUMENT_VERSION_MISMATCH;
    else
        result = read_into(call.device, K_ADDRESSING_MODE, &mode->value, sizeof mode->value);
    return call_end(&call, result);
}

/* ---- PCI and its link. ---- */

static nvmlReturn_t pci_info(enum function function, nvmlDevice_t device, nvmlPciInfo_t *info,
                             nvmlPciInfoExt_t *extended)
{
    struct call call;
    nvmlReturn_t result = call_begin_device(&call, function, device, ONCE);
    if (result != NVML_SUCCESS)
        return result;
    if (info == NULL && extended == NULL)
        return call_end(&call, NVML_ERROR_INVALID_ARGUMENT);
    if (extended != NULL && extended->version != NVML_VERSION(nvmlPciInfoExt_t, 1))
        return call_end(&call, NVML_ERROR_ARGUMENT_VERSION_MISMATCH);

    const struct value *bus_id = &call.device->values[K_PCI_BUS_ID];
    result = value_state(bus_id);
    if (result != NVML_SUCCESS)
        return call_end(&call, result);
    unsigned domain = 0, bus = 0, slot = 0;
    uint64_t device_id, subsystem_id; /* 0 where the scenario does not give them */
    sscanf(bus_id->text, "%x:%x:%x", &domain, &bus, &slot);
    read_number(call.device, K_PCI_DEVICE_ID, &device_id);
    read_number(call.device, K_PCI_SUBSYSTEM_ID, &subsystem_id);

    if (extended != NULL) {
        extended->domain = domain;
        extended->bus = bus;
        extended->device = slot;
        extended->pciDeviceId = (unsigned)device_id;
        extended->pciSubSystemId = (unsigned)subsystem_id;
        extended->baseClass = 3; /* display controller */
        extended->subClass = 2;  /* 3D controller */
        snprintf(extended->busId, sizeof extended->busId, "%s", bus_id->text);
    } else {
        memset(info, 0, sizeof *info);
        snprintf(info->busIdLegacy, sizeof info->busIdLegacy, "%04X:%02X:%02X.0", domain & 0xFFFF,
                 bus & 0xFF, slot & 0xFF);
        info->domain = domain;
        info->bus = bus;
        info->device = slot;
        info->pciDeviceId = (unsigned)device_id;
        info->pciSubSystemId = (unsigned)subsystem_id;
        snprintf(info->busId, sizeof info->busId, "%s", bus_id->text);
    }
    return call_end(&call, NVML_SUCCESS);
}

nvmlReturn_t nvmlDeviceGetPciInfo(nvmlDevice_t device, nvmlPciInfo_t *info)
{
    return pci_info(F_nvmlDeviceGetPciInfo, device, info, NULL);
}

nvmlReturn_t nvmlDeviceGetPciInfo_v2(nvmlDevice_t device, nvmlPciInfo_t *info)
{
    return pci_info(F_nvmlDeviceGetPciInfo_v2, device, info, NULL);
}

nvmlReturn_t nvmlDeviceGetPciInfo_v3(nvmlDevice_t device, nvmlPciInfo_t *info)
{
    return pci_info(F_nvmlDeviceGetPciInfo_v3, device, info, NULL);
}

nvmlReturn_t nvmlDeviceGetPciInfoExt(nvmlDevice_t device, nvmlPciInfoExt_t *info)
{
    return pci_info(F_nvmlDeviceGetPciInfoExt, device, NULL, info);
}

GET(nvmlDeviceGetCurrPcieLinkGeneration, unsigned int, PCIE_GENERATION)
GET(nvmlDeviceGetCurrPcieLinkWidth, unsigned int, PCIE_WIDTH)
GET(nvmlDeviceGetMaxPcieLinkGeneration, unsigned int, PCIE_MAX_GENERATION)
GET(nvmlDeviceGetMaxPcieLinkWidth, unsigned int, PCIE_MAX_WIDTH)
GET(nvmlDeviceGetGpuMaxPcieLinkGeneration, unsigned int, PCIE_GPU_MAX_GENERATION)
GET(nvmlDeviceGetPcieReplayCounter, unsigned int, PCIE_REPLAYS)
GET_AT(nvmlDeviceGetPcieThroughput, unsigned int, PCIE_SENT, 2)

/* ---- MIG. ---- */

GET_PAIR(nvmlDeviceGetMigMode, MIG_MODE, MIG_MODE_PENDING, true)
GET(nvmlDeviceGetGpuInstanceId, unsigned int, GPU_INSTANCE_ID)
GET(nvmlDeviceGetComputeInstanceId, unsigned int, COMPUTE_INSTANCE_ID)

nvmlReturn_t nvmlDeviceGetMaxMigDeviceCount(nvmlDevice_t device, unsigned int *count)
{
    struct call call;
    nvmlReturn_t result = call_begin_device(&call, F_nvmlDeviceGetMaxMigDeviceCount, device, ONCE);
    if (result != NVML_SUCCESS)
        return result;
    if (count == NULL || call.mig != NONE)
        return call_end(&call, NVML_ERROR_INVALID_ARGUMENT);
    uint64_t mode;
    bool enabled = read_number(call.device, K_MIG_MODE, &mode) == NVML_SUCCESS && mode == 1;
    *count = enabled ? 7 : 0;
    if (call.device->values[K_MIG_MAX_DEVICES].present)
        result = read_into(call.device, K_MIG_MAX_DEVICES, count, sizeof *count);
    return call_end(&call, result);
}

nvmlReturn_t nvmlDeviceGetAttributes_v2(nvmlDevice_t device, nvmlDeviceAttributes_t *attributes)
{
    struct call call;
    uint64_t memory = 0;
    nvmlReturn_t result = call_begin_device(&call, F_nvmlDeviceGetAttributes_v2, device, ONCE);
    if (result != NVML_SUCCESS)
        return result;
    if (attributes == NULL)
        return call_end(&call, NVML_ERROR_INVALID_ARGUMENT);
    unsigned int *counts = &attributes->multiprocessorCount; /* eight in the keys' order */
    for (int i = 0; i < 8 && result == NVML_SUCCESS; i++)
        result = read_into(call.device, K_ATTRIBUTES_MULTIPROCESSORS + i, counts + i,
                           sizeof *counts);
    if (result == NVML_SUCCESS)
        result = read_number(call.device, K_ATTRIBUTES_MEMORY_MIB, &memory);
    attributes->memorySizeMB = memory;
    return call_end(&call, result);
}
